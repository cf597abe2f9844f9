//go:build !linux

package testenv

import "syscall"

// EndWithParent returns attr unchanged: only Linux ends a process with its parent.
func EndWithParent(_ syscall.Signal, attr syscall.SysProcAttr) *syscall.SysProcAttr { return &attr }
