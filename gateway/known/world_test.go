package known

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// world is a memory with a clock that stands still unless it is moved, and a backend that knows who holds.
type world struct {
	*Sales
	t  testing.TB
	ms atomic.Int64

	mu      sync.Mutex
	header  string
	body    []byte
	err     error
	asked   int
	waiting chan struct{} // if not nil, an answer waits for it
}

func newWorld(t testing.TB) *world {
	w := &world{t: t}
	w.ms.Store(1_000_000)
	w.Sales = New(Config{Source: w.source, Now: w.ms.Load})
	t.Cleanup(w.Close)
	return w
}

func (w *world) source(ctx context.Context, _ string) (string, io.ReadCloser, error) {
	w.mu.Lock()
	w.asked++
	header, body, err, waiting := w.header, w.body, w.err, w.waiting
	w.mu.Unlock()
	if waiting != nil {
		select {
		case <-waiting:
		case <-ctx.Done():
			return "", nil, ctx.Err()
		}
	}
	return header, io.NopCloser(bytes.NewReader(body)), err
}

func (w *world) fetched() int {
	w.fetches.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// holds makes the backend's list.
func (w *world) holds(accepted int, names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.body = sumsOf(names)
	w.header, w.err = fmt.Sprintf("drop;accepted=%d;count=%d", accepted, len(w.body)/sumSize), nil
}

func (w *world) fails() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = errors.New("it is down")
}

func sumsOf(names []string) []byte {
	sums := make([]uint32, len(names))
	for i, name := range names {
		sums[i] = crc32.ChecksumIEEE([]byte(name))
	}
	slices.Sort(sums)
	var body []byte
	for _, sum := range slices.Compact(sums) {
		body = binary.BigEndian.AppendUint32(body, sum)
	}
	return body
}

// refused is a refusal that was asked for just now.
func (w *world) refused(state State, version, holders int64) {
	w.refusedAt(w.ms.Load(), state, version, holders)
}

func (w *world) refusedAt(sent int64, state State, version, holders int64) {
	w.Learn(w.ms.Load(), sent, "drop", Told{State: state, Version: version, TTL: time.Second, Holders: holders}, Answer{Status: 409, Body: []byte(state)})
	w.fetches.Wait()
}

func (w *world) pass(d time.Duration) { w.ms.Add(d.Milliseconds()) }

func (w *world) look(name string) (*Record, Verdict) {
	return w.lookWith(bearer(plainHeader, `{"sub":"`+name+`","exp":9999999999}`))
}

func (w *world) lookWith(token []byte) (*Record, Verdict) {
	r, v, _ := w.Look(w.ms.Load(), []byte("drop"), token, nil)
	return r, v
}

func (w *world) want(name string, want Verdict) *Record {
	w.t.Helper()
	r, got := w.look(name)
	if got != want || (r == nil) != (want == Pass) {
		w.t.Fatalf("%s at %d ms: verdict %d, want %d (0 pass, 1 repeat, 2 renew)", name, w.ms.Load()-1_000_000, got, want)
	}
	return r
}
