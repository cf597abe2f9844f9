package edgetrace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/common/expfmt"

	"sluice/internal/loop"
)

// Receiver makes spans of the lines that nginx sends for sampled requests (nginx/snippets/spans.conf). nginx sends them
// as syslog datagrams to a Unix socket and never waits: a line that finds no room is lost. Create it with Listen.
type Receiver struct {
	spans   *Recorder
	log     *slog.Logger
	metrics prometheus.Gatherer
	dir     string
	lines   *net.UnixConn
	scrapes net.Listener
	invalid prometheus.Counter
}

// Listen returns a Receiver with sockets in a directory of its own, which Close removes. It serves the metrics of
// registry, to which it adds its own.
func Listen(spans *Recorder, registry *prometheus.Registry, log *slog.Logger) (*Receiver, error) {
	dir, err := os.MkdirTemp("", "sluice-spans-")
	if err != nil {
		return nil, fmt.Errorf("spans: %w", err)
	}
	r := &Receiver{spans: spans, log: log, metrics: registry, dir: dir,
		invalid: promauto.With(registry).NewCounter(prometheus.CounterOpts{Name: "sluice_span_lines_invalid_total",
			Help: "Lines of nginx about sampled requests that could not be read."})}
	if err := r.listen(); err != nil {
		r.Close()
		return nil, fmt.Errorf("spans: %w", err)
	}
	return r, nil
}

func (r *Receiver) listen() error {
	// Workers may run as another user. Only processes that know the name of the directory can send lines.
	err := os.Chmod(r.dir, 0o711) //nolint:gosec // see above
	if err == nil {
		r.lines, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: r.Socket(), Net: "unixgram"})
	}
	if err == nil {
		r.scrapes, err = net.Listen("unix", r.Metrics())
	}
	if err != nil {
		return err
	}
	return errors.Join(os.Chmod(r.Socket(), 0o666), os.Chmod(r.Metrics(), 0o666)) //nolint:gosec // see above
}

// Socket is the path of the socket for lines, of datagrams.
func (r *Receiver) Socket() string { return filepath.Join(r.dir, "lines.sock") }

// Metrics is the path of a socket that sends the metrics, in the text format of Prometheus, to each connection.
func (r *Receiver) Metrics() string { return filepath.Join(r.dir, "metrics.sock") }

// Close removes the sockets. Call it after Run has returned.
func (r *Receiver) Close() {
	if r.lines != nil {
		r.lines.Close()
	}
	if r.scrapes != nil {
		r.scrapes.Close()
	}
	_ = os.RemoveAll(r.dir)
}

const (
	maxLine       = 256 << 10              // bytes; Linux permits less by default
	drainTimeout  = 100 * time.Millisecond // to read the lines of an nginx that has ended
	scrapeTimeout = time.Second            // to write the metrics
)

// Run makes spans and serves metrics until ctx ends. A failure to read, such as for lack of memory, is logged and does
// not end it: nginx does not depend on it.
func (r *Receiver) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { r.serveMetrics(ctx) })
	defer context.AfterFunc(ctx, func() {
		r.scrapes.Close()
		_ = r.lines.SetReadDeadline(time.Now().Add(drainTimeout))
	})()
	reading := loop.Backoff{Log: r.log, What: "reading the lines of sampled requests"}
	buffer := make([]byte, maxLine)
	for {
		n, err := r.lines.Read(buffer)
		switch {
		case err == nil:
			reading.Succeeded()
			r.receive(buffer[:n])
		case ctx.Err() != nil:
			return
		default:
			reading.Failed(ctx, err)
		}
	}
}

// line is one line of nginx, without the header of syslog.
type line struct {
	Time            float64 `json:"time"`    // Unix time of the end, in seconds
	Seconds         float64 `json:"seconds"` // duration
	ID              string  `json:"id"`
	Parent          string  `json:"parent"`
	Method          string  `json:"method"`
	Target          string  `json:"target"`
	Scheme          string  `json:"scheme"`
	Host            string  `json:"host"`
	Client          string  `json:"client"`
	Status          int     `json:"status"`
	Verdict         string  `json:"verdict"`
	Rule            string  `json:"rule"`
	Upstream        string  `json:"upstream"`
	UpstreamStatus  string  `json:"upstream_status"`
	UpstreamSeconds string  `json:"upstream_seconds"`
}

// receive records the request of a line. A request that nginx could not parse has no method, and no span.
func (r *Receiver) receive(datagram []byte) {
	var l line
	begin := bytes.IndexByte(datagram, '{')
	if begin < 0 || json.Unmarshal(datagram[begin:], &l) != nil || !(l.Time > 0 && l.Seconds >= 0) {
		r.invalid.Inc()
		return
	}
	if l.Method == "" {
		return
	}
	end := time.UnixMilli(int64(math.Round(l.Time * 1000)))
	r.spans.Record(&Request{
		ID: l.ID, Parent: l.Parent, Begin: end.Add(-time.Duration(l.Seconds * float64(time.Second))), End: end,
		Method: l.Method, Target: l.Target, Scheme: l.Scheme, Host: l.Host, Client: l.Client, Status: l.Status,
		Verdict: l.Verdict, Rule: l.Rule, Upstreams: l.Upstream, Statuses: l.UpstreamStatus, Seconds: l.UpstreamSeconds,
	})
}

// serveMetrics writes the metrics to each connection until ctx ends.
func (r *Receiver) serveMetrics(ctx context.Context) {
	accepting := loop.Backoff{Log: r.log, What: "accepting a connection for metrics"}
	for ctx.Err() == nil {
		conn, err := r.scrapes.Accept()
		if err != nil {
			accepting.Failed(ctx, err)
			continue
		}
		accepting.Succeeded()
		_ = conn.SetWriteDeadline(time.Now().Add(scrapeTimeout))
		families, _ := r.metrics.Gather() // what could be gathered
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(conn, f); err != nil {
				break
			}
		}
		conn.Close()
	}
}
