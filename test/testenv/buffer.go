package testenv

import (
	"bytes"
	"sync"
)

// Buffer keeps what is written to it, such as a log that a test reads while a server writes it. It is safe for
// concurrent use. The zero value is empty.
type Buffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}
