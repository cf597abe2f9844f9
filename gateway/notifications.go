package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"sluice/internal/loop"
)

const (
	notificationSilence = 12 * time.Second // after which a stream is considered dead; backends send a heartbeat every 5 s
	notificationRetry   = 200 * time.Millisecond
	notificationBackoff = 5 * time.Second // the longest wait between two attempts
)

// followNotifications receives sale notifications from one backend at a time until ctx ends, and invalidates the
// refusals of the sales that have changed. All backends publish the same notifications. They are an optimization: a
// missed notification delays the effect of a change by up to a second.
func (g *Gateway) followNotifications(ctx context.Context) {
	wait := notificationRetry
	for ctx.Err() == nil {
		connected, err := g.readNotifications(ctx)
		if connected {
			wait = notificationRetry
		}
		g.log.Debug("sale notifications interrupted", "err", err)
		loop.Sleep(ctx, wait/2+rand.N(wait/2))
		wait = min(2*wait, notificationBackoff)
	}
}

// readNotifications reads the stream of one backend until it ends. connected reports whether there was one.
func (g *Gateway) readNotifications(ctx context.Context) (connected bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(notificationSilence, cancel)
	defer silence.Stop()
	resp, err := g.proxy.Fetch(ctx, "/.sluice/signals")
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if t := resp.Header.Get("Content-Type"); t != "text/event-stream" {
		return false, fmt.Errorf("sale notifications have content type %q", t)
	}
	g.metrics.notificationsUp.Set(1)
	defer g.metrics.notificationsUp.Set(0)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 512), 4<<10)
	for lines.Scan() {
		silence.Reset(notificationSilence)
		if sale := notifiedSale(lines.Bytes()); sale != "" {
			g.refusals.Invalidate(g.now(), []byte(sale))
			g.metrics.notifications.Inc()
		}
	}
	if err = lines.Err(); err == nil {
		err = io.EOF
	}
	return true, err
}

// notifiedSale returns the sale of a line of the stream, or "" for lines without one and for unknown versions. Every
// kind of change invalidates the cache, so the event itself is not relevant.
func notifiedSale(line []byte) string {
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
