package events

import (
	"sync"
	"time"
)

// A ScanBound is where the next scan of a table begins that reads rows in ascending order, such as the outbox.
// PostgreSQL keeps rows that were updated or deleted, and their index entries, for as long as any transaction in the
// database is older. A scan from the beginning of the table would read all of them each time, so only one scan in
// wholeScan begins there. The zero value is ready to use. It is safe for concurrent use.
type ScanBound struct {
	mu    sync.Mutex
	at    int64
	whole time.Time // the last scan from the beginning
}

// wholeScan is the interval of scans from the beginning: the maximum delay of a row that no other scan finds.
const wholeScan = 5 * time.Second

// Next returns the key above which the next scan begins.
func (b *ScanBound) Next() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); now.Sub(b.whole) >= wholeScan {
		b.whole = now
		return -1
	}
	return b.at
}

// Advance sets the key above which scans begin, except for those from the beginning.
func (b *ScanBound) Advance(to int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = to
}
