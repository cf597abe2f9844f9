package known

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// Source fetches a sale's list of holders from a backend: the value of Sluice-Holders, and the body that goes with it. The caller closes the body.
type Source func(ctx context.Context, sale string) (header string, body io.ReadCloser, err error)

// holders are the sums of all who may hold an order, as they came: 4 bytes each, big-endian, ascending. It does not change.
type holders struct {
	sums     []byte
	accepted int64 // it is complete up to this acceptance
	fetched  int64 // ms: when it was there
}

const sumSize = 4

func (h *holders) count() int {
	if h == nil {
		return 0
	}
	return len(h.sums) / sumSize
}

// has looks a sum up. About 20 steps find it among a million.
func (h *holders) has(sum uint32) bool {
	low, high := 0, h.count()
	for low < high {
		middle := int(uint(low+high) / 2)
		switch at := h.at(middle); {
		case at == sum:
			return true
		case at < sum:
			low = middle + 1
		default:
			high = middle
		}
	}
	return false
}

func (h *holders) at(i int) uint32 { return binary.BigEndian.Uint32(h.sums[i*sumSize:]) }

var (
	errTooMany = errors.New("more holders than are kept")
	errList    = errors.New("not a list of holders")
)

// readList takes a list in. The room for it is taken before the body is read, and given back with an error.
func readList(header string, body io.Reader, sale string, room *room) (h *holders, err error) {
	accepted, count, ok := readHolders(header, sale)
	if !ok {
		return nil, fmt.Errorf("%w: its header is %.100q", errList, header)
	}
	if count > MaxHolders || !room.take(int(count)) {
		return nil, fmt.Errorf("%w: %d", errTooMany, count)
	}
	defer func() {
		if err != nil {
			room.give(int(count))
		}
	}()
	h = &holders{accepted: accepted, sums: make([]byte, count*sumSize)}
	if _, err := io.ReadFull(body, h.sums); err != nil {
		return nil, fmt.Errorf("%w: it ends early: %w", errList, err)
	}
	if n, _ := body.Read(make([]byte, 1)); n > 0 {
		return nil, fmt.Errorf("%w: it does not end", errList)
	}
	for i := 1; i < h.count(); i++ {
		if h.at(i) <= h.at(i-1) {
			return nil, fmt.Errorf("%w: it is not in order", errList)
		}
	}
	return h, nil
}

// room counts the sums of all lists.
type room struct{ taken atomic.Int64 }

// take takes room for so many sums, if there is.
func (r *room) take(count int) bool {
	if r.taken.Add(int64(count)) <= MaxSums {
		return true
	}
	r.give(count)
	return false
}

func (r *room) give(count int) { r.taken.Add(-int64(count)) }
