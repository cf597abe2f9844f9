package edgetrace

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/internal/tracing"
	"sluice/test/testenv"
)

const whole = `{"time":1795440772.885,"seconds":0.003,"id":"` + id + `","parent":"` + parent + `","method":"GET",` +
	`"target":"/","scheme":"http","host":"x","client":"192.0.2.1","status":200,"verdict":"","rule":"",` +
	`"upstream":"127.0.0.1:80","upstream_status":"200","upstream_seconds":"0.001"}`

func TestReceiverReadsLines(t *testing.T) {
	recorder, spans := recorded(t, tracing.Sampling{})
	registry := prometheus.NewRegistry()
	r, err := Listen(recorder, registry, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("udp", r.Address())
	if err != nil {
		t.Fatal(err)
	}
	header := "<190>Nov 23 13:00:00 " + r.Tag() + ": "
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	for _, text := range []string{
		"", "x", "{", header + whole[:len(whole)/2], header + "{}", header + `{"time":-1}`,
		header + strings.Replace(whole, "0.003", `"x"`, 1), header + strings.Repeat("\x00{", 30_000), // invalid
		"<190>Nov 23 13:00:00 nginx: " + whole, "<190>Nov 23 13:00:00 : " + whole, // of another process
		header + strings.Replace(whole, `"GET"`, `""`, 1), header + strings.Replace(whole, id, "x", 1), // no request
		header + whole,
	} {
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	conn.Close()
	scrape, err := net.Dial("unix", r.Metrics())
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(scrape)
	if err != nil || !strings.Contains(string(text), "\nsluice_span_lines_dropped_total{reason=\"lost\"} 0\n") {
		t.Errorf("metrics %q, %v", text, err)
	}
	stop()
	<-done
	if n := testutil.ToFloat64(r.invalid); n != 10 {
		t.Errorf("%v lines are invalid, want 10", n)
	}
	all := spans.Ended()
	if len(all) != 2 {
		t.Fatalf("%d spans", len(all))
	}
	if end := time.UnixMilli(1795440772885); !all[1].EndTime().Equal(end) ||
		!all[1].StartTime().Equal(end.Add(-3*time.Millisecond)) || !all[0].StartTime().Equal(end.Add(-time.Millisecond)) {
		t.Errorf("spans from %v to %v, and from %v", all[1].StartTime(), all[1].EndTime(), all[0].StartTime())
	}
	r.Close()
	if _, err := os.Stat(r.Metrics()); err == nil {
		t.Error("the socket exists after Close")
	}
}

// Lines beyond the buffer are lost, and counted when the next line is received.
func TestLostLinesAreCounted(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux counts the datagrams that a socket drops")
	}
	recorder, spans := recorded(t, tracing.Sampling{})
	r, err := Listen(recorder, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	conn, err := net.Dial("udp", r.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	text := []byte("<190>Nov 23 13:00:00 " + r.Tag() + ": " + whole)
	const sent = 20_000
	for range sent {
		if _, err := conn.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	defer func() { stop(); <-done }()
	more, received, lost := 0, 0, 0
	testenv.Eventually(t, time.Minute, "each line is received or counted as lost", func() bool {
		received, lost = len(spans.Ended())/2, int(testutil.ToFloat64(r.lost))
		if received+lost == sent+more && lost > 0 {
			return true
		}
		_, err := conn.Write(text) // lost lines are counted with the next one
		if err == nil {
			more++
		}
		return false
	})
	if received == 0 {
		t.Errorf("%d lines were sent, none received and %d lost", sent+more, lost)
	}
}

// For any datagram, the receiver does not panic and exports no text that a collector rejects.
func FuzzLine(f *testing.F) {
	for _, text := range []string{whole, "{}", `{"time":1e300,"seconds":1e300,"method":"GET","id":"` + id + `"}`, whole[:40]} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		recorder, spans := recorded(t, tracing.Sampling{})
		r := &Receiver{spans: recorder, tag: "tag", invalid: prometheus.NewCounter(prometheus.CounterOpts{Name: "x"})}
		r.receive(append([]byte("<190> tag: "), text...))
		for _, s := range spans.Ended() {
			if s.EndTime().Before(s.StartTime()) {
				t.Errorf("the span ends at %v and begins at %v", s.EndTime(), s.StartTime())
			}
			for _, a := range s.Attributes() {
				if !utf8.ValidString(a.Value.String()) {
					t.Errorf("%s is %q", a.Key, a.Value.String())
				}
			}
		}
	})
}
