//go:build !linux

package nginx

import "os/exec"

// startBound starts cmd and sends the result of Wait to ended. A child outlives a killed parent here.
func startBound(cmd *exec.Cmd, ended chan<- error) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { ended <- cmd.Wait() }()
	return nil
}
