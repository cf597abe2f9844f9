package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// Times of listening to a backend.
const (
	signalSilence   = 12 * time.Second // a backend says something every five
	signalFirstWait = 200 * time.Millisecond
	signalMostWait  = 5 * time.Second
)

// listen hears from one backend at a time of changes of sales, so that what is known of them is forgotten at once and not within a second. All backends hear the same, so one is
// enough. Nothing relies on it: a signal may be lost, and while no backend can be listened to, none comes.
func (g *Gateway) listen(ctx context.Context) {
	all := g.balancer.upstreams
	wait := signalFirstWait
	for turn := rand.IntN(len(all)); ; turn++ {
		u := all[turn%len(all)]
		if !u.suspect.Load() || len(all) == 1 {
			heard, err := g.listenTo(ctx, u)
			if ctx.Err() != nil {
				return
			}
			if heard {
				wait = signalFirstWait
			}
			g.log.Debug("a backend does not tell of changes of sales", "upstream", u.name, "err", err)
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		wait = min(2*wait, signalMostWait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// listenTo listens to one backend until that ends. heard says that it has begun to.
func (g *Gateway) listenTo(ctx context.Context, u *upstream) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(signalSilence, cancel)
	defer silence.Stop()
	body, err := u.signals(ctx)
	if err != nil {
		return false, err
	}
	defer body.Close()
	g.metrics.listening.Set(1)
	defer g.metrics.listening.Set(0)
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 512), 4<<10)
	for lines.Scan() {
		silence.Reset(signalSilence)
		if sale := signalledSale(lines.Bytes()); sale != "" {
			g.sales.Changed(g.now(), []byte(sale))
			g.metrics.signals.Inc()
		}
	}
	if err = lines.Err(); err == nil {
		err = io.EOF
	}
	return true, err
}

// signalledSale is the sale of which a line of the stream says something, or nothing: other lines, and versions that are not known here, are passed over. What
// has happened does not matter: whatever it is, what was known is out of date.
func signalledSale(line []byte) string {
	data, ok := bytes.CutPrefix(line, []byte("data: "))
	if !ok {
		return ""
	}
	var m struct {
		Version int    `json:"v"`
		Sale    string `json:"sale"`
	}
	if json.Unmarshal(data, &m) != nil || m.Version != 1 {
		return ""
	}
	return m.Sale
}

// signals opens the stream of this backend, over a connection of its own.
func (u *upstream) signals(ctx context.Context) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/.sluice/signals", nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return u.dial(ctx) },
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: readerSize,
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.name, err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		_ = resp.Body.Close()
		return nil, errors.New(u.name + ": it has no signals")
	}
	return resp.Body, nil
}
