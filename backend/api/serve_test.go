package api

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

// SIGTERM in the middle of everything: streams end, waits answer, an open purchase is finished, nothing new comes in.
func TestDrainFinishesWhatIsOpen(t *testing.T) {
	w := newWorld()
	w.queued[orderID(1)] = bought(1, "ann", sale.StatusQueued)
	entered, release := make(chan struct{}), make(chan struct{})
	w.admit = func(admission.Request) (admission.Decision, error) {
		close(entered)
		<-release
		return admission.Decision{Outcome: sale.Accepted, OrderID: orderID(2)}, nil
	}
	s := w.serve(t)
	next, _ := s.listen("drop")
	next()
	next()
	waited, purchased := make(chan answer, 1), make(chan answer, 1)
	go func() { waited <- s.order("ann", orderID(1), "?wait=30s") }()
	go func() { purchased <- s.buy(t, "ann") }()
	<-entered
	testenv.Eventually(t, 5*time.Second, "one waits", func() bool { return len(w.waitingIDs(s)) == 1 })

	s.stop()
	if got := next(); got != "end" {
		t.Errorf("the stream goes on with %s", got)
	}
	if a := <-waited; a.status != 200 || a.field(t, "status") != "queued" {
		t.Errorf("waiting: %d %s", a.status, a.body)
	}
	testenv.Eventually(t, 5*time.Second, "no new connections", func() bool {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	select {
	case err := <-s.done:
		t.Fatalf("ended with a purchase open: %v", err)
	default:
	}
	close(release)
	if a := <-purchased; a.status != 202 {
		t.Errorf("the open purchase got %d", a.status)
	}
	if err := <-s.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	s.done <- nil
}

func TestDrainThatTakesTooLongIsAnError(t *testing.T) {
	w := newWorld()
	entered, release := make(chan struct{}), make(chan struct{})
	w.admit = func(admission.Request) (admission.Decision, error) {
		close(entered)
		<-release
		return admission.Decision{Outcome: sale.Accepted, OrderID: orderID(2)}, nil
	}
	cfg := w.config(t)
	cfg.Drain = 50 * time.Millisecond
	app, err := NewPublic(cfg)
	s := serve(t, app, err)
	purchased := make(chan answer, 1)
	go func() { purchased <- s.buy(t, "ann") }()
	<-entered
	s.stop()
	if err := <-s.done; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Serve: %v", err)
	}
	s.done <- nil
	close(release)
	<-purchased
}

func TestServeWithAnEndedContextReturns(t *testing.T) {
	w := newWorld()
	app, err := NewPublic(w.config(t))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Serve(ctx, app, ln); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// failing is a listener with some failures first.
type failing struct {
	net.Listener
	left atomic.Int32
	with error
}

func (l *failing) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", l.with)}
	}
	return l.Listener.Accept()
}

func TestServeOutlivesPassingAcceptErrors(t *testing.T) {
	w := newWorld()
	app, err := NewPublic(w.config(t))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	flaky := &failing{Listener: ln, with: syscall.EMFILE}
	flaky.left.Store(3)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, app, flaky) }()
	s := &site{t: t, app: app, addr: ln.Addr().String()}
	if a := s.ask("GET", "/healthz", ""); a.status != 200 {
		t.Errorf("%d", a.status)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestServeReportsALastingAcceptError(t *testing.T) {
	app, err := NewPublic(newWorld().config(t))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broken := &failing{Listener: ln, with: syscall.EINVAL}
	broken.left.Store(1)
	if err := Serve(context.Background(), app, broken); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Serve: %v", err)
	}
}
