package testenv

import "syscall"

// EndWithParent returns attr for a process that gets a signal when the thread that starts it ends: a killed test leaves
// no server behind.
func EndWithParent(sig syscall.Signal, attr syscall.SysProcAttr) *syscall.SysProcAttr {
	attr.Pdeathsig = sig
	return &attr
}
