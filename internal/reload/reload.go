// Package reload reads files that a user names, and detects changes of those that a process reads repeatedly.
package reload

import (
	"fmt"
	"io"
	"os"
)

// MaxPEM bounds the files of certificates and keys, in bytes.
const MaxPEM = 1 << 20

// ReadFile returns the content of a file. It returns an error if the file has more than the given number of bytes,
// because a device may have no end.
func ReadFile(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(text)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return text, err
}

// Detector compares the content of a file with that of the last read. It does not use the modification time or size:
// a file may be replaced by one with an old time, or change twice within the resolution of the file system. The zero
// value is ready for use. Not safe for concurrent use.
type Detector struct {
	called bool
	text   string
	failed string // error of the last read
}

// Changed reports whether the text or the error of a read differs from the last one. The first call returns true.
func (d *Detector) Changed(text []byte, err error) bool {
	failed := ""
	if err != nil {
		failed, text = err.Error(), nil
	}
	if d.called && failed == d.failed && string(text) == d.text {
		return false
	}
	d.called, d.text, d.failed = true, string(text), failed
	return true
}

// IsPipe reports whether a file is a named pipe, which can be read only once: another read of it may block without end.
func IsPipe(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}
