package refusalcache

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fixture is a cache with a manual clock, and a fake backend that serves a bypass list.
type fixture struct {
	*Cache
	t  testing.TB
	ms atomic.Int64

	mu         sync.Mutex
	header     string
	body       []byte
	err        error
	fetchCount int
	gate       chan struct{} // if not nil, fetches wait until it is closed
}

func newFixture(t testing.TB) *fixture {
	f := &fixture{t: t}
	f.ms.Store(1_000_000)
	f.Cache = New(Config{Source: f.source, Now: f.ms.Load, Logger: slog.New(slog.DiscardHandler), OnFetch: func(bool) {}})
	t.Cleanup(f.Close)
	return f
}

func (f *fixture) source(ctx context.Context, _ string) (string, io.ReadCloser, error) {
	f.mu.Lock()
	f.fetchCount++
	header, body, err, gate := f.header, f.body, f.err, f.gate
	f.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return "", nil, ctx.Err()
		}
	}
	return header, io.NopCloser(bytes.NewReader(body)), err
}

func (f *fixture) countFetches() int {
	f.fetches.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fetchCount
}

// setList sets the bypass list of the backend.
func (f *fixture) setList(accepted int, names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.body = hashesOf(names)
	f.header, f.err = fmt.Sprintf("drop;accepted=%d;count=%d", accepted, len(f.body)/hashSize), nil
}

func (f *fixture) failFetches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = errors.New("backend down")
}

func hashesOf(names []string) []byte {
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

// store stores a refusal of a request sent now.
func (f *fixture) store(state State, version, holders int64) {
	f.storeSentAt(f.ms.Load(), state, version, holders)
}

func (f *fixture) storeSentAt(sent int64, state State, version, holders int64) {
	f.Store(f.ms.Load(), sent, "drop", SaleHint{State: state, Version: version, TTL: time.Second, Holders: holders},
		Response{Status: 409, Body: []byte(state)})
	f.fetches.Wait()
}

func (f *fixture) advance(d time.Duration) { f.ms.Add(d.Milliseconds()) }

func (f *fixture) lookup(name string) (*Record, Result) {
	return f.lookupToken(bearer(plainHeader, `{"sub":"`+name+`","exp":9999999999}`))
}

func (f *fixture) lookupToken(token []byte) (*Record, Result) {
	r, v, _ := f.Lookup(f.ms.Load(), []byte("drop"), token, nil)
	return r, v
}

func (f *fixture) want(name string, want Result) *Record {
	f.t.Helper()
	r, got := f.lookup(name)
	if got != want || (r == nil) != (want == Miss) {
		f.t.Fatalf("%s at %d ms: result %d, want %d (0 miss, 1 hit, 2 revalidate)", name, f.ms.Load()-1_000_000, got, want)
	}
	return r
}
