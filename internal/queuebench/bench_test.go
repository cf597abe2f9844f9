package queuebench

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/queue"
	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// Every cell of the table is measured, and no driver in Redis loses a message.
func TestRunMeasuresEveryDriver(t *testing.T) {
	rows, err := Run(t.Context(), Options{Orders: 2000, Rounds: 1, Rate: 400, Span: 250 * time.Millisecond},
		func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 {
		t.Fatalf("%d drivers", len(rows))
	}
	for _, r := range rows {
		inRedis := r.Driver != "memory"
		if r.Accepted <= 0 || r.Drained <= 0 || r.Alone <= 0 || r.P50 <= 0 || r.P99 < r.P50 || r.Memory <= 0 ||
			(r.CPU > 0) != inRedis ||
			(r.AOF > 0) != inRedis {
			t.Errorf("not measured: %+v", r)
		}
		if r.Worker != (Loss{Messages: queued, Twice: takenBatch}) || !r.InOrder || !r.Replayed || r.Kept != 0 {
			t.Errorf("%s: %+v", r.Driver, r)
		}
		lost := queued
		if inRedis {
			lost = 0
		}
		if r.Server == nil || r.Server.Lost != lost {
			t.Errorf("%s after kill -9: %+v, want %d lost", r.Driver, r.Server, lost)
		}
	}
	var table, plot bytes.Buffer
	Write(&table, rows)
	if n := strings.Count(table.String(), "\n"); n != 15 {
		t.Errorf("the table has %d lines:\n%s", n, table.String())
	}
	if err := Draw(&plot, rows); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(&plot); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the plot is not XML: %v", err)
		}
	}
}

// forgetful is a subject that loses the batches of killed workers.
type forgetful struct{ *memorySubject }

func (f forgetful) TakeAs(ctx context.Context, id string, limit int, ack string) (queue.Batch, bool, error) {
	if len(f.ready) == 0 {
		clear(f.taken)
	}
	return f.memorySubject.TakeAs(ctx, id, limit, ack)
}

// Messages that are lost with a killed worker are a result of the run, and no error.
func TestMessagesOfAKilledWorkerCanBeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := killWorker(t.Context(), forgetful{&memorySubject{}})
		if want := (Loss{Messages: queued, Lost: takenBatch}); got != want || err != nil {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	})
}

// A run empties its database, so Run rejects one that holds keys.
func TestRunRejectsRedisThatHoldsKeys(t *testing.T) {
	r := testenv.StartRedis(t)
	r.Client().Set(t.Context(), "precious", "1", 0)
	_, err := Run(t.Context(), Options{RedisURL: r.URL, Orders: 1000, Rounds: 1, Rate: 1}, func(string) {})
	if !errors.Is(err, ErrNotEmpty) {
		t.Errorf("Run returned %v, want ErrNotEmpty", err)
	}
	if r.Client().Get(t.Context(), "precious").Val() != "1" {
		t.Error("Run deleted the key")
	}
}

// A Redis that no longer answers does not delay the end of a run.
func TestCloseDoesNotWaitForRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := redisconn.Dial(func() (net.Conn, error) {
			conn, server := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, server) }()
			return conn, nil
		})
		client, err := redisconn.Open("redis://redis:6379", silent, redisconn.LongTimeouts)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		(&server{client: client}).close()
		if took := time.Since(began); took > closeTimeout {
			t.Errorf("close returned after %v", took)
		}
	})
}

// A server that cannot be started again after a crash ends the run.
func TestServerThatCannotBeStartedAgain(t *testing.T) {
	s, err := openServer(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	t.Setenv("PATH", "")
	if ours, err := s.crash(t.Context()); !ours || err == nil {
		t.Errorf("crash returned %t, %v", ours, err)
	}
}
