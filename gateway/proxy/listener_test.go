package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestAcceptRetriesTemporaryErrors(t *testing.T) {
	inner := &failingListener{errs: []error{
		syscall.EMFILE, syscall.ECONNABORTED, syscall.EHOSTUNREACH, syscall.EPERM, net.ErrClosed,
	}}
	l := &listener{Listener: inner, config: &Config{Logger: slog.New(slog.DiscardHandler)}, clock: newClock()}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || len(inner.errs) != 0 {
		t.Errorf("Accept returned %v, with %d errors to come", err, len(inner.errs))
	}
}

type failingListener struct {
	net.Listener
	errs []error
}

func (l *failingListener) Accept() (net.Conn, error) {
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, &net.OpError{Op: "accept", Err: err}
}

// fasthttp's Shutdown may return before the last connection is closed. Such a connection must not count as cut off.
func TestAwaitClosedWaitsForConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closing, stuck := &Conn{}, &Conn{}
		l := &listener{open: map[*Conn]struct{}{closing: {}, stuck: {}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		time.AfterFunc(time.Second, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.open, closing)
		})
		l.awaitClosed(ctx)
		if took := time.Since(start); took != time.Minute || l.count() != 1 {
			t.Errorf("waited %v with %d connections left, want a minute and 1", took, l.count())
		}
		delete(l.open, stuck)
		start = time.Now()
		l.awaitClosed(t.Context())
		if took := time.Since(start); took != 0 {
			t.Errorf("waited %v without connections", took)
		}
	})
}

// A request may arrive at the chosen connection before evict closes it. Then evict closes another idle one.
func TestEvictClosesAnotherConnectionAfterARequest(t *testing.T) {
	socket, _ := net.Pipe()
	conns := make([]*Conn, candidates)
	for i := range conns {
		conns[i] = &Conn{socket: socket}
	}
	for range 5000 {
		l := &listener{open: map[*Conn]struct{}{}}
		for _, c := range conns {
			c.idleSince.Store(2)
			l.open[c] = struct{}{}
		}
		longest := conns[0]
		longest.idleSince.Store(1)
		arrived := make(chan struct{})
		go func() {
			longest.idleSince.CompareAndSwap(1, 0)
			close(arrived)
		}()
		if !l.evict() {
			t.Fatalf("evict closed none of %d connections, all but one idle", len(l.open))
		}
		<-arrived
	}
}

// Idle clients must leave files for other clients and for the connections to backends.
func TestConnectionsLeaveFilesForBackends(t *testing.T) {
	for files, want := range map[int]int{0: 8192, 1 << 20: 8192, 16448: 8192, 1024: 480, 256: 96, 64: 1, 1: 1} {
		if got := connLimit(files); got != want {
			t.Errorf("%d files: %d connections, want %d", files, got, want)
		}
	}
}

func TestAddrOf(t *testing.T) {
	for _, c := range []struct {
		addr net.Addr
		want string
	}{
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, "192.0.2.1"},
		{&net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1"), Port: 1}, "192.0.2.1"},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}, "fe80::1"},
		{&net.UnixAddr{Name: "/x"}, "0.0.0.0"},
		{nil, "0.0.0.0"},
	} {
		if got := AddrOf(c.addr); got.String() != c.want {
			t.Errorf("%v is %s, want %s", c.addr, got, c.want)
		}
	}
}
