package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// A container may mount a single file, which cannot be replaced.
func TestCreateFileOverwritesAMountPoint(t *testing.T) {
	runtime.LockOSThread() // the thread has mounts of its own, and ends with the test
	if err := syscall.Unshare(syscall.CLONE_NEWNS); errors.Is(err, syscall.EPERM) {
		t.Skip("needs the right to mount")
	} else if err != nil {
		t.Fatal(err)
	}
	path, mounted := write(t, "chart.svg", "the old chart"), write(t, "mounted.svg", "the old chart, mounted")
	for _, err := range []error{
		syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount(mounted, path, "", syscall.MS_BIND, ""),
		checkFile(path),
		createFile(path, 0o600, func(w io.Writer) error { _, err := io.WriteString(w, "the new chart"); return err }),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	text, err := os.ReadFile(mounted)
	if err != nil || string(text) != "the new chart" {
		t.Errorf("%v, and the file is %q", err, text)
	}
	if files, err := filepath.Glob(path + "?*"); err != nil || len(files) > 0 {
		t.Errorf("%v, and the files %q", err, files)
	}
	if err := syscall.Unmount(path, 0); err != nil {
		t.Error(err)
	}
}
