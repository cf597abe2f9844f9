package redisconn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
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

// fakeSentinel is a Sentinel with answers that a test sets.
type fakeSentinel struct {
	addr    string
	queries atomic.Int64

	mu     sync.Mutex
	master string
	epoch  int
	others []string
	silent chan struct{} // if not nil, it answers when this is closed
	done   func()        // called after each complete answer
}

func newSentinel(t *testing.T, master string) *fakeSentinel {
	t.Helper()
	s, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveSentinel(t, s, master)
}

func serveSentinel(t *testing.T, s *server.Server, master string) *fakeSentinel {
	t.Helper()
	l := &fakeSentinel{addr: s.Addr().String()}
	l.setMaster(master, 1)
	t.Cleanup(func() { l.resume(); s.Close() })
	err := s.Register("SENTINEL", func(c *server.Peer, _ string, args []string) {
		l.queries.Add(1)
		l.mu.Lock()
		silent, done, master, epoch, others := l.silent, l.done, l.master, l.epoch, l.others
		l.mu.Unlock()
		if silent != nil {
			<-silent
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
			if done != nil {
				done()
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *fakeSentinel) setMaster(master string, epoch int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.master, l.epoch = master, epoch
}

// onDone calls back after each complete answer.
func (l *fakeSentinel) onDone(back func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = back
}

// pause stops its answers, as if its machine were cut off.
func (l *fakeSentinel) pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = make(chan struct{})
}

func (l *fakeSentinel) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silent != nil {
		close(l.silent)
		l.silent = nil
	}
}

func at(t *testing.T, all ...*fakeSentinel) *redisconn.Server {
	t.Helper()
	url := "redis://" + all[0].addr + "/0?master_name=shop"
	for _, l := range all[1:] {
		url += "&addr=" + l.addr
	}
	s, err := redisconn.NewServer(url)
	if err != nil {
		t.Fatal(err)
	}
	s.SetSentinelTimeout(20 * time.Second)
	return s
}

func open(t *testing.T, s *redisconn.Server, options ...redisconn.Option) redisconn.Client {
	t.Helper()
	c := s.Open(options...)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// writes reports whether a write of the client arrives at this Redis.
func writes(ctx context.Context, c redisconn.Client, to *miniredis.Miniredis) bool {
	_ = to.Set("where", "")
	if c.Set(ctx, "where", "here", 0).Err() != nil {
		return false
	}
	got, _ := to.Get("where")
	return got == "here"
}

// The machine of the master and of one Sentinel is cut off.
func TestFailoverWithOneSilentSentinel(t *testing.T) {
	for silent := range 3 {
		first, second := miniredis.RunT(t), miniredis.RunT(t)
		all := []*fakeSentinel{newSentinel(t, first.Addr()), newSentinel(t, first.Addr()), newSentinel(t, first.Addr())}
		client := open(t, at(t, all...))
		testenv.Eventually(t, time.Minute, "a write to the first master", func() bool {
			return writes(t.Context(), client, first)
		})
		for i, l := range all {
			if i == silent {
				l.pause()
			} else {
				l.setMaster(second.Addr(), 2)
			}
		}
		first.Close()
		testenv.Eventually(t, time.Minute, "a write to the second master", func() bool {
			return writes(t.Context(), client, second)
		})
	}
}

// A Sentinel that was down reports the previous master. The latest failover wins, whichever Sentinel answers first.
func TestLatestFailoverWins(t *testing.T) {
	first, second := miniredis.RunT(t), miniredis.RunT(t)
	for _, newer := range []int{0, 1} {
		all := []*fakeSentinel{newSentinel(t, first.Addr()), newSentinel(t, first.Addr())} // both are the majority
		all[newer].setMaster(second.Addr(), 2)
		early, late := all[0], all[1]
		late.pause()
		early.onDone(late.resume)
		if client := open(t, at(t, all...)); !writes(t.Context(), client, second) {
			t.Errorf("Sentinel %d has the newer answer: the write did not arrive at the second master", newer)
		}
	}
}

// Sentinels receive the result of a failover one after the other. A client does not return to the old master when a
// Sentinel reports it.
func TestClientDoesNotReturnToTheOldMaster(t *testing.T) {
	first, second := miniredis.RunT(t), miniredis.RunT(t)
	sentinel := newSentinel(t, second.Addr())
	sentinel.setMaster(second.Addr(), 2)
	s := at(t, sentinel)
	if !writes(t.Context(), open(t, s), second) {
		t.Error("the write did not arrive at the second master")
	}
	sentinel.setMaster(first.Addr(), 1)
	before := sentinel.queries.Load()
	testenv.Eventually(t, time.Minute, "the Sentinel is queried again", func() bool {
		if !writes(t.Context(), open(t, s), second) {
			t.Error("the write did not arrive at the second master")
		}
		return sentinel.queries.Load() >= before+3
	})
}

// The URL does not have to list every Sentinel.
func TestSentinelsAreDiscovered(t *testing.T) {
	first, second := miniredis.RunT(t), miniredis.RunT(t)
	one, other := newSentinel(t, first.Addr()), newSentinel(t, first.Addr())
	one.others = []string{other.addr}
	s := at(t, one)
	if !writes(t.Context(), open(t, s), first) {
		t.Error("the write did not arrive at the first master")
	}
	one.pause()
	other.setMaster(second.Addr(), 2)
	testenv.Eventually(t, time.Minute, "a write to the master that the discovered Sentinel reports", func() bool {
		return writes(t.Context(), open(t, s), second)
	})
}

// Calls that wait for a machine that is cut off end as soon as a Sentinel reports another master.
func TestConnectionsToTheOldMasterAreClosed(t *testing.T) {
	first, second := miniredis.RunT(t), miniredis.RunT(t)
	sentinel := newSentinel(t, first.Addr())
	s := at(t, sentinel)
	idle, waits := open(t, s), open(t, s, redisconn.LongTimeouts, redisconn.Once)
	if !writes(t.Context(), idle, first) {
		t.Error("the write did not arrive at the first master")
	}
	over := make(chan error, 1)
	go func() { over <- waits.BLPop(t.Context(), 0, "nothing").Err() }()
	testenv.Eventually(t, time.Minute, "one idle connection and one blocked connection", func() bool {
		return first.CurrentConnectionCount() == 2
	})
	sentinel.setMaster(second.Addr(), 2)
	testenv.Eventually(t, time.Minute, "a third client writes to the second master", func() bool {
		return writes(t.Context(), open(t, s), second)
	})
	select {
	case err := <-over:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("the blocked call ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the call still waits for the old master")
	}
	if !writes(t.Context(), idle, second) {
		t.Error("the client used the idle connection to the old master")
	}
}

// Each server has a certificate for its own address, which a client verifies.
func TestCertificatesAreThoseOfTheAddresses(t *testing.T) {
	config := newTLS(t)
	names := make(chan string, 100) // of the host for which the client of the master verifies the certificate
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		names <- hello.ServerName
		return nil, nil
	}
	master := runTLS(t, config)
	sentinel := newTLSSentinel(t, master.Addr())
	_, port, _ := net.SplitHostPort(sentinel.addr)
	if !writes(t.Context(), open(t, atTLS(t, "localhost:"+port)), master) {
		t.Fatal("the write did not arrive at the master")
	}
	if name := <-names; name != "" { // TLS sends no address as a name
		t.Errorf("the certificate of the master at %s is verified for %q", master.Addr(), name)
	}
}

// newTLS returns the settings of a server with a certificate.
func newTLS(t *testing.T) *tls.Config {
	t.Helper()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	testenv.Certificate(t, cert, key, 1)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

func runTLS(t *testing.T, config *tls.Config) *miniredis.Miniredis {
	t.Helper()
	m, err := miniredis.RunTLS(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func newTLSSentinel(t *testing.T, master string) *fakeSentinel {
	t.Helper()
	s, err := server.NewServerTLS("127.0.0.1:0", newTLS(t))
	if err != nil {
		t.Fatal(err)
	}
	return serveSentinel(t, s, master)
}

// atTLS is at for a Sentinel with TLS, without a check of certificates.
func atTLS(t *testing.T, addr string) *redisconn.Server {
	t.Helper()
	s, err := redisconn.NewServer("rediss://" + addr + "/0?master_name=shop&skip_verify=true")
	if err != nil {
		t.Fatal(err)
	}
	s.SetSentinelTimeout(20 * time.Second)
	return s
}

// A dial to an old master that does not answer ends when a Sentinel reports another master.
func TestDialEndsWhenTheMasterChanges(t *testing.T) {
	hole, second := newHole(t), miniredis.RunT(t)
	sentinel := newSentinel(t, hole)
	client := open(t, at(t, sentinel), redisconn.Timeouts(20*time.Second), redisconn.Once)
	over := make(chan error, 1)
	go func() { over <- client.Set(t.Context(), "where", "here", 0).Err() }()
	testenv.Eventually(t, time.Minute, "the Sentinel was queried", func() bool { return sentinel.queries.Load() >= 3 })
	sentinel.setMaster(second.Addr(), 2)
	if err := <-over; err != nil {
		t.Errorf("no connection to the second master: %v", err)
	}
}

// A TLS handshake with an old master also ends then, if the master accepts the connection and does not answer.
func TestHandshakeEndsWhenTheMasterChanges(t *testing.T) {
	silent, second := testenv.Listen(t), runTLS(t, newTLS(t))
	sentinel := newTLSSentinel(t, silent.Addr().String())
	client := open(t, atTLS(t, sentinel.addr), redisconn.Timeouts(20*time.Second), redisconn.Once)
	over := make(chan error, 1)
	go func() { over <- client.Set(t.Context(), "where", "here", 0).Err() }()
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sentinel.setMaster(second.Addr(), 2)
	if err := <-over; err != nil {
		t.Errorf("no connection to the second master: %v; unavailable: %t", err, redisconn.Unavailable(err))
	}
}

// newHole returns an address that neither accepts nor refuses connections.
func newHole(t *testing.T) string {
	t.Helper()
	syscall.ForkLock.RLock() // SOCK_CLOEXEC is in Linux only
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	bind := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err := errors.Join(bind, syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
	for range 10 { // fill the backlog
		conn, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the backlog does not fill up")
	return ""
}

// A refused connection fails at its first command instead of at the dial, because after several failed dials the pool
// of the library would dial only once a second. A failure is cached for a queryInterval, so that a busy process does
// not dial a stopped server for every command.
func TestRefusedConnectionsAreNotFailedDials(t *testing.T) {
	client := open(t, at(t, newSentinel(t, testenv.FreeAddress(t))))
	dial := func() error {
		conn, err := client.(*redis.Client).Options().Dialer(t.Context(), "tcp", "")
		if err != nil {
			t.Fatalf("the dial failed: %v", err)
		}
		defer conn.Close()
		_, err = conn.Write([]byte("PING\r\n"))
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("a write to a server that does not run returns %v", err)
		}
		return err
	}
	testenv.Eventually(t, time.Minute, "two calls share a failure", func() bool {
		return dial() == dial() //nolint:errorlint // the same value
	})
	if err := client.Ping(t.Context()).Err(); !errors.Is(err, syscall.ECONNREFUSED) || !redisconn.Unavailable(err) {
		t.Errorf("a command returns %v", err)
	}
}
