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
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return nil, readError(path, errors.New("it is not a regular file"))
	}
	return load(path)
}

// load reads at most one byte more than MaxSize, so that Parse detects a policy that is too large.
func load(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, readError(path, err)
	}
	defer f.Close()
	source, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, readError(path, err)
	}
	return source, nil
}

// readError returns a finding without the path in the text of err, because the finding contains it already.
func readError(path string, err error) error {
	why := err.Error()
	if errors.Is(err, syscall.EISDIR) {
		why = "it is a directory"
	} else if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		why = pathErr.Err.Error()
	}
	return Findings{{File: path, Message: "cannot be read: " + why}}
}
