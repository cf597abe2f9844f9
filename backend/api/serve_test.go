package api

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver/servertest"
	"sluice/test/testenv"
)

// A drain ends streams and waits, finishes an open purchase and accepts no connection.
func TestDrainFinishesOpenRequests(t *testing.T) {
	w := newWorld()
	w.queued[servertest.OrderID(1)] = servertest.Order(1, "ann", sale.StatusQueued)
	entered, release := make(chan struct{}), make(chan struct{})
	w.admit = func(admission.Request) (admission.Decision, error) {
		close(entered)
		<-release
		return admission.Decision{Outcome: sale.Accepted, OrderID: servertest.OrderID(2)}, nil
	}
	s := w.serve(t)
	next, _ := s.listen("drop")
	next()
	next()
	waited, purchased := make(chan servertest.Answer, 1), make(chan servertest.Answer, 1)
	go func() { waited <- s.order("ann", servertest.OrderID(1), "?wait=30s") }()
	go func() { purchased <- s.buy(t, "ann") }()
	<-entered
	testenv.Eventually(t, time.Minute, "a request waits", func() bool { return len(w.waitingIDs(s)) == 1 })

	s.Stop()
	if got := next(); got != "end" {
		t.Errorf("the stream continues with %s", got)
	}
	if a := <-waited; a.Status != 200 || a.Field(t, "status") != "queued" {
		t.Errorf("waiting: %d %s", a.Status, a.Body)
	}
	testenv.Eventually(t, time.Minute, "no new connections", func() bool {
		c, err := net.Dial("tcp", s.Addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	select {
	case err := <-s.Done:
		t.Fatalf("ended with a purchase open: %v", err)
	default:
	}
	close(release)
	if a := <-purchased; a.Status != 202 {
		t.Errorf("the open purchase got %d", a.Status)
	}
	if err := <-s.Done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	s.Done <- nil
}

func TestDrainThatTakesTooLongIsAnError(t *testing.T) {
	w := newWorld()
	entered, release := make(chan struct{}), make(chan struct{})
	w.admit = func(admission.Request) (admission.Decision, error) {
		close(entered)
		<-release
		return admission.Decision{Outcome: sale.Accepted, OrderID: servertest.OrderID(2)}, nil
	}
	cfg := w.config(t)
	cfg.Server.Drain = 50 * time.Millisecond
	s := serve(t, cfg)
	purchased := make(chan servertest.Answer, 1)
	go func() { purchased <- s.buy(t, "ann") }()
	<-entered
	s.Stop()
	if err := <-s.Done; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Serve: %v", err)
	}
	s.Done <- nil
	close(release)
	<-purchased
}
