package nginx

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startBound starts cmd and sends the result of Wait to ended. cmd ends when this process ends. The kernel ties that to
// the thread that starts the child, hence a thread of its own.
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
