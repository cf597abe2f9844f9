package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// killOf kills a worker of this machine, when it is one.
func killOf(pid string) (func() error, error) {
	n, err := strconv.Atoi(pid)
	if err != nil || n < 2 {
		return nil, fmt.Errorf("%q is no process id", pid)
	}
	check := func() error {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(n), "cmdline"))
		if err != nil {
			return fmt.Errorf("there is no process %d on this machine", n)
		}
		args := strings.Split(string(text), "\x00")
		if len(args) < 2 || !strings.Contains(filepath.Base(args[0]), "sluice") || args[1] != "worker" {
			return fmt.Errorf("process %d is no sluice worker", n)
		}
		return nil
	}
	if err := check(); err != nil {
		return nil, err
	}
	return func() error {
		if err := check(); err != nil { // the number may be another process's by now
			return err
		}
		process, err := os.FindProcess(n)
		if err != nil {
			return err
		}
		return process.Kill()
	}, nil
}

// openFiles is how many files, and so connections, this process may have open; 0 when that is not known.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur, 1<<20))
}
