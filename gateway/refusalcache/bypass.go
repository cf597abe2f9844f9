package refusalcache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
	"sync/atomic"
)

// bypassList contains the possible holders of an order of a sale, as hashes of their names: 4 bytes each, big-endian,
// ascending, as the backend sends them. It is immutable. A nil list is empty.
type bypassList struct {
	hashes   []byte
	accepted int64 // number of accepted orders that the list includes
	fetched  int64 // when it arrived, in ms
}

const hashSize = 4

func (l *bypassList) len() int {
	if l == nil {
		return 0
	}
	return len(l.hashes) / hashSize
}

func (l *bypassList) contains(hash uint32) bool {
	i := sort.Search(l.len(), func(i int) bool { return l.at(i) >= hash })
	return i < l.len() && l.at(i) == hash
}

func (l *bypassList) at(i int) uint32 { return binary.BigEndian.Uint32(l.hashes[i*hashSize:]) }

var (
	errTooLarge = errors.New("bypass list exceeds the memory limit")
	errInvalid  = errors.New("invalid bypass list")
)

// readBypassList parses a list. Its memory is reserved before the body is read, and released on an error.
func readBypassList(header string, body io.Reader, sale string, b *budget) (l *bypassList, err error) {
	accepted, count, ok := parseHolders(header, sale)
	if !ok {
		return nil, fmt.Errorf("%w: header %.100q", errInvalid, header)
	}
	if count > maxSaleEntries || !b.reserve(int(count)) {
		return nil, fmt.Errorf("%w: %d entries", errTooLarge, count)
	}
	defer func() {
		if err != nil {
			b.release(int(count))
		}
	}()
	l = &bypassList{accepted: accepted, hashes: make([]byte, count*hashSize)}
	if _, err := io.ReadFull(body, l.hashes); err != nil {
		return nil, fmt.Errorf("%w: body too short: %w", errInvalid, err)
	}
	if n, _ := body.Read(make([]byte, 1)); n > 0 {
		return nil, fmt.Errorf("%w: body too long", errInvalid)
	}
	for i := 1; i < l.len(); i++ {
		if l.at(i) <= l.at(i-1) {
			return nil, fmt.Errorf("%w: entries are not in ascending order", errInvalid)
		}
	}
	return l, nil
}

// budget limits the entries of all lists to maxEntries.
type budget struct{ used atomic.Int64 }

// reserve reports whether count more entries fit, and counts them if they do.
func (b *budget) reserve(count int) bool {
	if b.used.Add(int64(count)) <= maxEntries {
		return true
	}
	b.release(count)
	return false
}

func (b *budget) release(count int) { b.used.Add(-int64(count)) }
