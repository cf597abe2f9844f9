package edgetrace

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"sluice/internal/loop"
	"sluice/internal/metric"
	"sluice/internal/unixsocket"
)

// Receiver creates spans from the lines that nginx sends for sampled requests (nginx/snippets/spans.conf). nginx sends
// them as syslog datagrams over the loopback interface and never waits. If the buffer is full, a line is lost and
// counted. A Unix socket is not used, because nginx logs an error for each line while the socket is full. Create it
// with Listen.
type Receiver struct {
	spans   *Recorder
	log     *slog.Logger
	metrics prometheus.Gatherer
	tag     string
	lines   *net.UDPConn
	scrapes *unixsocket.Socket // of metrics

	invalid, lost prometheus.Counter
	overflow      uint32 // lost lines, as counted by the kernel
}

// Listen returns a Receiver with a port and a Unix socket of its own, which Close removes. It serves the metrics of
// registry, to which it adds its own.
func Listen(spans *Recorder, registry *prometheus.Registry, log *slog.Logger) (*Receiver, error) {
	dropped := metric.With(registry).Counters("sluice_span_lines_dropped_total",
		"Lines of nginx about sampled requests that are no spans: lost (too many waited), invalid.", "reason")
	r := &Receiver{spans: spans, log: log, metrics: registry, tag: strings.ToLower(rand.Text()),
		invalid: dropped.WithLabelValues("invalid"), lost: dropped.WithLabelValues("lost")}
	if err := r.listen(); err != nil {
		r.Close()
		return nil, fmt.Errorf("spans: %w", err)
	}
	return r, nil
}

func (r *Receiver) listen() (err error) {
	if r.lines, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		return err
	}
	_ = r.lines.SetReadBuffer(lineBuffer) // without a privilege the kernel limits it
	if err := reportOverflow(r.lines); err != nil {
		return err
	}
	r.scrapes, err = unixsocket.Listen("sluice-spans-", "metrics.sock")
	return err
}

// Address is the address for lines, 127.0.0.1:port.
func (r *Receiver) Address() string { return r.lines.LocalAddr().String() }

// Tag is the tag that a syslog message must have. It is secret: other processes can reach the address as well.
func (r *Receiver) Tag() string { return r.tag }

// Metrics is the path of a socket that sends the metrics, in the text format of Prometheus, to each connection.
func (r *Receiver) Metrics() string { return r.scrapes.Path() }

// Close removes the sockets. Call it after Run has returned.
func (r *Receiver) Close() {
	if r.lines != nil {
		r.lines.Close()
	}
	if r.scrapes != nil {
		r.scrapes.Close()
	}
}

const (
	maxLine       = 64 << 10               // bytes of a datagram
	lineBuffer    = 4 << 20                // bytes of lines buffered by the kernel
	drainTimeout  = 100 * time.Millisecond // to read the lines of an nginx that has ended
	scrapeTimeout = time.Second            // to write the metrics
)

// Run creates spans and serves metrics until ctx ends. A failed read, for example for lack of memory, is logged and
// does not end it.
func (r *Receiver) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { r.scrapes.Serve(ctx, r.log, "accepting a connection for metrics", 1, r.writeMetrics) })
	defer context.AfterFunc(ctx, func() { _ = r.lines.SetReadDeadline(time.Now().Add(drainTimeout)) })()
	reading := loop.Backoff{Log: r.log, What: "reading the lines of sampled requests"}
	buffer, control := make([]byte, maxLine), make([]byte, controlSize)
	for {
		n, more, _, _, err := r.lines.ReadMsgUDP(buffer, control)
		switch {
		case err == nil:
			reading.Succeeded()
			if total, ok := overflow(control[:more]); ok {
				r.lost.Add(float64(total - r.overflow)) // the counter wraps
				r.overflow = total
			}
			if !r.spans.Full() {
				r.receive(buffer[:n])
			}
		case ctx.Err() != nil:
			return
		default:
			reading.Failed(ctx, err)
		}
	}
}

// line is one line of nginx, without the header of syslog.
type line struct {
	Request

	Time float64 `json:"time"`    // Unix time of the end, in seconds
	Took float64 `json:"seconds"` // duration
}

// receive records the request of a line. A request that nginx could not parse has no method and gets no span.
func (r *Receiver) receive(datagram []byte) {
	var l line
	_, text, tagged := bytes.Cut(datagram, []byte(" "+r.tag+": "))
	if !tagged || json.Unmarshal(text, &l) != nil || !(l.Time > 0 && l.Took >= 0) {
		r.invalid.Inc()
		return
	}
	if l.Method == "" {
		return
	}
	l.End = time.UnixMilli(int64(math.Round(l.Time * 1000)))
	l.Begin = l.End.Add(-time.Duration(l.Took * float64(time.Second)))
	r.spans.Record(&l.Request)
}

func (r *Receiver) writeMetrics(conn net.Conn) {
	_ = conn.SetWriteDeadline(time.Now().Add(scrapeTimeout))
	families, _ := r.metrics.Gather() // exports the part that could be gathered
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(conn, f); err != nil {
			return
		}
	}
}
