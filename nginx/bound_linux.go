package nginx

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startBound starts cmd and sends the result of Wait to ended. cmd receives SIGQUIT when this process ends. The kernel
// sends the signal when the thread that started cmd ends, so startBound starts it on a thread that exists as long as
// cmd runs.
func startBound(cmd *exec.Cmd, ended chan<- error) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return <-started
}
