package policy

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// Source returns the text of the policy file at path, for Parse. Its error is Findings. The file must be a regular
// file: opening a pipe may block forever.
func Source(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, readError(path, reason(err))
	case info.IsDir():
		return nil, readError(path, isDirectory)
	case !info.Mode().IsRegular():
		return nil, readError(path, "it is not a regular file")
	}
	return load(path)
}

// load reads at most one byte more than MaxSize, so that Parse detects a policy that is too large.
func load(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, readError(path, reason(err))
	}
	defer f.Close()
	source, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, readError(path, reason(err))
	}
	return source, nil
}

func readError(path, why string) error {
	return Findings{{File: path, Message: "cannot be read: " + why}}
}

const isDirectory = "it is a directory"

// reason returns the text of an error without the path, which the finding contains already.
func reason(err error) string {
	if errors.Is(err, syscall.EISDIR) {
		return isDirectory
	}
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		return pathErr.Err.Error()
	}
	return err.Error()
}
