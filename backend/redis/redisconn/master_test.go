package redisconn_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// lookout is a Sentinel that says what a test tells it.
type lookout struct {
	addr  string
	asked atomic.Int64

	mu     sync.Mutex
	master string
	epoch  int
	others []string
	dumb   chan struct{} // not nil: it answers when this is closed
	told   func()        // called when it has told all that it is asked
}

func newLookout(t *testing.T, master string) *lookout {
	t.Helper()
	s, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &lookout{addr: s.Addr().String()}
	l.names(master, 1)
	t.Cleanup(func() { l.speak(); s.Close() })
	err = s.Register("SENTINEL", func(c *server.Peer, _ string, args []string) {
		l.asked.Add(1)
		l.mu.Lock()
		dumb, told, master, epoch, others := l.dumb, l.told, l.master, l.epoch, l.others
		l.mu.Unlock()
		if dumb != nil {
			<-dumb
		}
		host, port, _ := net.SplitHostPort(master)
		switch strings.ToLower(args[0]) {
		case "get-master-addr-by-name":
			c.WriteStrings([]string{host, port})
		case "master":
			c.WriteStrings([]string{"ip", host, "port", port, "config-epoch", strconv.Itoa(epoch)})
		case "sentinels":
			c.WriteLen(len(others))
			for _, o := range others {
				host, port, _ := net.SplitHostPort(o)
				c.WriteStrings([]string{"ip", host, "port", port})
			}
			if told != nil {
				told()
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lookout) names(master string, epoch int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.master, l.epoch = master, epoch
}

// tells calls back whenever it has told all.
func (l *lookout) tells(back func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = back
}

// hush lets nothing be heard of it any more, as if its machine were cut off.
func (l *lookout) hush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dumb = make(chan struct{})
}

func (l *lookout) speak() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dumb != nil {
		close(l.dumb)
		l.dumb = nil
	}
}

func at(t *testing.T, all ...*lookout) *redisconn.Server {
	t.Helper()
	url := "redis://" + all[0].addr + "/0?master_name=shop"
	for _, l := range all[1:] {
		url += "&addr=" + l.addr
	}
	s, err := redisconn.NewServer(url)
	if err != nil {
		t.Fatal(err)
	}
	s.Patient(20 * time.Second)
	return s
}

func open(t *testing.T, s *redisconn.Server, options ...redisconn.Option) *redis.Client {
	t.Helper()
	c := s.Open(options...)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// writes tells whether a write of the client arrives at this Redis.
func writes(ctx context.Context, c *redis.Client, to *miniredis.Miniredis) bool {
	_ = to.Set("where", "")
	return c.Set(ctx, "where", "here", 0).Err() == nil && func() bool { got, _ := to.Get("where"); return got == "here" }()
}

// The machine that is cut off has the master and a Sentinel. Whichever of the Sentinels it is, the others are heard.
func TestOneSilentSentinelKeepsNobodyWaiting(t *testing.T) {
	for silent := range 3 {
		first, second := miniredis.RunT(t), miniredis.RunT(t)
		all := []*lookout{newLookout(t, first.Addr()), newLookout(t, first.Addr()), newLookout(t, first.Addr())}
		client := open(t, at(t, all...))
		testenv.Eventually(t, 20*time.Second, "a write to the first master", func() bool { return writes(t.Context(), client, first) })
		for i, l := range all {
			if i == silent {
				l.hush()
			} else {
				l.names(second.Addr(), 2)
			}
		}
		first.Close()
		testenv.Eventually(t, 20*time.Second, "a write to the second master", func() bool { return writes(t.Context(), client, second) })
	}
}

// A Sentinel that was away for a while names the master of before, be it the first to answer or the last.
func TestLatestFailoverCounts(t *testing.T) {
	first, second := miniredis.RunT(t), miniredis.RunT(t)
	for _, newer := range []int{0, 1} {
		all := []*lookout{newLookout(t, first.Addr()), newLookout(t, first.Addr())} // most of two are both
		all[newer].names(second.Addr(), 2)
		early, late := all[0], all[1]
		late.hush()
		early.tells(late.speak)
		if client := open(t, at(t, all...)); !writes(t.Context(), client, second) {
			t.Errorf("with the newer word of Sentinel %d: not written to the second master", newer)
		}
	}
}

// Sentinels hear of a failover one after the other. Whoever has heard of it does not go back when he asks one that has not.
func TestNobodyGoesBackToTheOldMaster(t *testing.T) {
	first, second := miniredis.RunT(t), miniredis.RunT(t)
	sentinel := newLookout(t, second.Addr())
	sentinel.names(second.Addr(), 2)
	s := at(t, sentinel)
	if !writes(t.Context(), open(t, s), second) {
		t.Error("not written to the second master")
	}
	sentinel.names(first.Addr(), 1)
	before := sentinel.asked.Load()
	testenv.Eventually(t, 20*time.Second, "the Sentinel is asked again", func() bool {
		if !writes(t.Context(), open(t, s), second) {
			t.Error("not written to the second master")
		}
		return sentinel.asked.Load() >= before+3
	})
}

// Those who know the others need not be named.
func TestSentinelsAreFoundThroughOne(t *testing.T) {
	first, second := miniredis.RunT(t), miniredis.RunT(t)
	one, other := newLookout(t, first.Addr()), newLookout(t, first.Addr())
	one.others = []string{other.addr}
	s := at(t, one)
	if !writes(t.Context(), open(t, s), first) {
		t.Error("not written to the first master")
	}
	one.hush()
	other.names(second.Addr(), 2)
	testenv.Eventually(t, 20*time.Second, "a write to the master that only the other one knows", func() bool { return writes(t.Context(), open(t, s), second) })
}

// Who waits for a machine that is cut off is told as soon as anybody learns of another master.
func TestConnectionsToTheOldMasterAreClosed(t *testing.T) {
	first, second := miniredis.RunT(t), miniredis.RunT(t)
	sentinel := newLookout(t, first.Addr())
	s := at(t, sentinel)
	idle, waits := open(t, s), open(t, s, redisconn.LongTimeouts, func(o *redis.Options) { o.MaxRetries = -1 })
	if !writes(t.Context(), idle, first) {
		t.Error("not written to the first master")
	}
	over := make(chan error, 1)
	go func() { over <- waits.BLPop(t.Context(), 0, "nothing").Err() }()
	testenv.Eventually(t, 20*time.Second, "one connection is idle, and another one waits", func() bool { return first.CurrentConnectionCount() == 2 })
	sentinel.names(second.Addr(), 2)
	testenv.Eventually(t, 20*time.Second, "a third client finds the second master", func() bool { return writes(t.Context(), open(t, s), second) })
	select {
	case err := <-over:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("the wait ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the old master still")
	}
	if !writes(t.Context(), idle, second) {
		t.Error("the idle connection was used again")
	}
}

// While a connection to the old master does not come about, another one is named: that is asked at once.
func TestConnectingEndsWhenTheMasterMoves(t *testing.T) {
	hole, second := newHole(t), miniredis.RunT(t)
	sentinel := newLookout(t, hole)
	client := open(t, at(t, sentinel), func(o *redis.Options) { o.DialTimeout, o.MaxRetries = 20*time.Second, -1 })
	over := make(chan error, 1)
	go func() { over <- client.Set(t.Context(), "where", "here", 0).Err() }()
	testenv.Eventually(t, 20*time.Second, "the Sentinel was asked", func() bool { return sentinel.asked.Load() >= 3 })
	sentinel.names(second.Addr(), 2)
	if err := <-over; err != nil {
		t.Errorf("no second connection was made: %v", err)
	}
}

// newHole is an address at which nobody answers and nobody refuses.
func newHole(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
	for range 10 { // those who wait to be accepted leave no room for others
		conn, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("connections are made that nobody accepts")
	return ""
}
