package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// openOutput creates a temporary file, which the caller renames to path when it is complete. It has at most the
// permissions of the file that it replaces. Its name is random, because another process may write to the same path. If
// path is no regular file but, for example, a device, a pipe or a link, openOutput opens path itself and whole is
// false.
func openOutput(path string, flags int, mode fs.FileMode) (file *os.File, whole bool, err error) {
	name := path
	info, missing := os.Lstat(path)
	if whole = missing != nil || info.Mode().IsRegular(); whole {
		name += "." + rand.Text()[:8] + ".sluice-tmp"
		flags |= os.O_CREATE | os.O_EXCL
	}
	if whole && missing == nil {
		mode = info.Mode().Perm()
	}
	file, err = os.OpenFile(name, os.O_WRONLY|flags, mode)
	return file, whole, ofPath(path, err)
}

// ofPath replaces the name of the temporary file in an error by path.
func ofPath(path string, err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		failed.Path = path
	}
	return err
}

// createFile creates or replaces a file atomically: after an error or a crash, the old one is unchanged. It writes
// directly to a device, a pipe, a link or a mount point, and may then call write twice.
func createFile(path string, mode fs.FileMode, write func(io.Writer) error) error {
	file, whole, err := openOutput(path, os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if err = write(file); err == nil && whole {
		err = file.Sync()
	}
	if err = errors.Join(ofPath(path, err), ofPath(path, file.Close())); !whole {
		return err
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	if err = os.Rename(file.Name(), path); err == nil {
		return nil
	}
	removed := os.Remove(file.Name())
	if errors.Is(err, syscall.EBUSY) { // a file that a container mounts
		err = overwriteFile(path, write)
	}
	return errors.Join(err, removed)
}

func overwriteFile(path string, write func(io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// checkFile returns an error if createFile cannot open a file. Call it before the work that fills the file.
func checkFile(path string) error {
	file, whole, err := openOutput(path, 0, 0o600)
	if err != nil {
		return fmt.Errorf("%w: name another file", err)
	}
	err = file.Close()
	if whole {
		err = errors.Join(err, os.Remove(file.Name()))
	}
	return err
}

// checkDirectory returns an error if no file can be created in a directory. Call it before the work that fills files.
func checkDirectory(dir string) error {
	file, err := os.CreateTemp(dir, ".sluice-*")
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("no file can be created in %q: %w: name another directory", dir, cause.Err)
	}
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}
