package assemble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/redisconn"
)

func TestMemoryConnectionCarriesEverythingInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := memoryPipe()
		sent := bytes.Repeat([]byte("sluice "), 100_000)
		for part := range 10 { // no write waits for a read
			n := len(sent) / 10
			if _, err := client.Write(sent[part*n : (part+1)*n]); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("read %d of %d bytes: %v", len(got), len(sent), err)
		}
		if _, err := server.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a write to a closed connection: %v", err)
		}
	})
}

func TestMemoryConnectionKeepsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := memoryPipe()
		read := func() (took time.Duration, n int, err error) {
			begin := time.Now()
			n, err = client.Read(make([]byte, 8))
			return time.Since(begin), n, err
		}
		_ = client.SetDeadline(time.Now().Add(time.Second))
		if took, _, err := read(); took != time.Second || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a read ended after %v with %v", took, err)
		}
		for _, change := range []time.Duration{time.Minute, time.Hour} { // earlier and later than the deadline
			_ = client.SetReadDeadline(time.Now().Add(10 * time.Minute))
			time.AfterFunc(time.Second, func() { _ = client.SetReadDeadline(time.Now().Add(change)) })
			if took, _, err := read(); took != change+time.Second || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a read with a new deadline after %v ended after %v with %v", change, took, err)
			}
		}
		_ = client.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Hour, func() { _, _ = server.Write([]byte("late")) })
		if took, n, err := read(); took != time.Hour || n != 4 || err != nil {
			t.Errorf("read %d bytes after %v: %v", n, took, err)
		}
		time.AfterFunc(time.Hour, func() { _ = server.Close() })
		if took, _, err := read(); took != time.Hour || !errors.Is(err, io.EOF) {
			t.Errorf("the end after %v: %v", took, err)
		}
	})
}

// Commands of one pipeline, and their replies, may be larger than any buffer.
func TestEmbeddedRedisAnswersLargePipelines(t *testing.T) {
	embedded, err := StartEmbeddedRedis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer embedded.Close()
	client, err := redisconn.Open(embedded.url(), embedded.option(), redisconn.LongTimeouts)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const n = 100
	large := strings.Repeat("x", 50_000)
	cmds, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range n {
			p.Set(t.Context(), fmt.Sprint(i), large, 0)
			p.Get(t.Context(), fmt.Sprint(i))
		}
		return nil
	})
	if err != nil || len(cmds) != 2*n {
		t.Fatalf("%d replies, %v", len(cmds), err)
	}
	for i := range n {
		if got := cmds[2*i+1].(*redis.StringCmd).Val(); got != large {
			t.Fatalf("reply %d has %d bytes", i, len(got))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := client.BLPop(ctx, time.Minute, "none").Err(); err == nil {
		t.Error("a call does not end with its context")
	}
}

// A client may still dial when the server ends, because go-redis dials in the background.
func TestClosedEmbeddedRedisRefusesConnections(t *testing.T) {
	e, err := StartEmbeddedRedis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, err := redisconn.Open(e.url(), e.option())
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	dialled := make(chan error)
	go func() {
		for {
			if _, err := e.dial(); err != nil {
				dialled <- err
				return
			}
		}
	}()
	e.Close()
	e.Close()
	if err := <-dialled; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Error("a closed server answers")
	}
	_ = client.Close()
}
