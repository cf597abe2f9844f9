package edgetrace

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/internal/tracing"
)

const header = "<190>Nov 23 13:00:00 nginx: "

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
	conn, err := net.Dial("unixgram", r.Socket())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	for _, text := range []string{
		"", "x", "{", header + whole[:len(whole)/2], header + "{}", header + `{"time":-1}`,
		header + strings.Replace(whole, "0.003", `"x"`, 1), header + strings.Repeat("\x00{", 30_000), // invalid
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
	if err != nil || !strings.Contains(string(text), "\nsluice_span_lines_invalid_total ") {
		t.Errorf("metrics %q, %v", text, err)
	}
	stop()
	<-done
	if n := testutil.ToFloat64(r.invalid); n != 8 {
		t.Errorf("%v lines are invalid, want 8", n)
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
	if _, err := os.Stat(r.Socket()); err == nil {
		t.Error("the socket is there after Close")
	}
}
