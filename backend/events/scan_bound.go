package events

import (
	"sync"
	"time"
)

// A ScanBound holds the key above which the next scan of a table begins. It is for repeated scans that read rows in the
// order of a key, such as those of the outbox. The zero K is below all rows. PostgreSQL keeps rows that were updated or
// deleted, and their index entries, for as long as any transaction in the database is older. A scan from the beginning
// reads all of them, so only one scan per WholeScan begins there. A bound is a hint: a row below it is found by the
// next scan from the beginning. The zero value is ready to use. It is safe for concurrent use.
type ScanBound[K any] struct {
	mu    sync.Mutex
	key   K
	whole time.Time // the last scan from the beginning
}

const (
	// WholeScan is the interval of scans from the beginning: the maximum delay of a row that no other scan finds.
	WholeScan = 5 * time.Second
	// LateCommit is the margin of a bound for rows that become visible late, because their transactions began earlier and
	// committed later than those of rows with higher keys. If the key is a time, callers set the bound earlier by
	// LateCommit. A row that is later than that waits for a scan from the beginning.
	LateCommit = time.Second
)

// Next returns the key above which a scan begins at the time now.
func (b *ScanBound[K]) Next(now time.Time) (from K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.whole) >= WholeScan {
		b.whole = now
		return from
	}
	return b.key
}

// Key returns the key of the last Advance.
func (b *ScanBound[K]) Key() K {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.key
}

// Advance sets the key above which scans begin, except for those from the beginning.
func (b *ScanBound[K]) Advance(to K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.key = to
}
