package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/events"
	"sluice/internal/loop"
)

// Run reads the event stream while pages are open, until ctx ends. It returns nil.
func (l *Live) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.wanted:
		}
		l.follow(ctx)
	}
}

// follow reads until no page has been open for LiveConfig.Linger, or ctx ends. It retries after errors.
func (l *Live) follow(ctx context.Context) {
	defer l.stop("stopped")
	retry := loop.Backoff{Log: l.cfg.Log, What: "reading events of open pages"}
	wasRead, wasOpen := time.Now(), time.Now()
	for ctx.Err() == nil {
		if err := l.read(ctx); err == nil {
			retry.Succeeded()
			wasRead = time.Now()
		} else {
			if time.Since(wasRead) >= l.cfg.Lost {
				l.stop("unread")
			}
			retry.Failed(ctx, err)
		}
		if l.isOpen() {
			wasOpen = time.Now()
		} else if time.Since(wasOpen) >= l.cfg.Linger {
			return
		}
	}
}

func (l *Live) isOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count > 0
}

func (l *Live) isReading() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reading
}

// begin reads the newest events and the end of the stream, and lets waiting pages join.
func (l *Live) begin(ctx context.Context) error {
	var entries []redis.XMessage
	before := "+"
	for len(entries) < recentEvents { // in several calls, so that each is short
		page, err := l.client.XRevRangeN(ctx, l.space.Events(), before, "-", 1024).Result()
		if err != nil {
			return err
		}
		entries = append(entries, page...)
		if len(page) < 1024 {
			break
		}
		before = "(" + page[len(page)-1].ID
	}
	var batch []events.Event
	for _, m := range slices.Backward(entries) {
		batch = append(batch, entry(m))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recent, l.last = nil, 0
	for _, e := range batch {
		l.note(e)
	}
	l.reading = true
	close(l.ready)
	return nil
}

// stop ends reading and disconnects the open pages.
func (l *Live) stop(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.reading {
		return
	}
	l.reading = false
	l.ready = make(chan struct{})
	l.cutAll(reason)
	if l.count > 0 { // pages that joined meanwhile
		l.wanted.Up()
	}
}

// cutAll disconnects all pages. l.mu is held.
func (l *Live) cutAll(reason string) {
	for _, pages := range l.pages {
		for p := range pages {
			l.cut(p, reason)
		}
	}
}

// blocking is how long a read blocks in Redis, and the longest delay of a stop.
const blocking = 500 * time.Millisecond

const (
	// markLife is how long a relay moves all events after a mark, and markInterval how often this process marks.
	markLife     = 10 * time.Second
	markInterval = markLife / 10
)

// mark lets the relay move all events although there may be no group. It precedes the first read, so a page that reads
// SQL after that misses no event. If a mark expires while this process cannot reach Redis, the positions have a gap in
// the place of the events that the relay has dropped.
func (l *Live) mark(ctx context.Context) error {
	now := time.Now()
	if l.isReading() && now.Sub(l.marked) < markInterval {
		return nil
	}
	if err := l.client.Set(ctx, l.space.EventPages(), "1", markLife).Err(); err != nil {
		return err
	}
	l.marked = now
	return nil
}

// read waits for events and passes them to the pages. If the stream is not read yet, it calls begin instead.
func (l *Live) read(ctx context.Context) error {
	if err := l.mark(ctx); err != nil {
		return err
	}
	if !l.isReading() {
		return l.begin(ctx)
	}
	streams, err := l.client.XRead(ctx, &redis.XReadArgs{
		Streams: []string{l.space.Events(), fmt.Sprintf("%d-0", l.last)}, Count: 500, Block: blocking,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return err
	}
	var batch []events.Event
	for _, m := range streams[0].Messages {
		batch = append(batch, entry(m))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range batch {
		l.note(e)
	}
	return nil
}

// entry decodes an entry of the stream. Type is "" for events that pages do not receive.
func entry(m redis.XMessage) events.Event {
	body, _ := m.Values["event"].(string)
	e, err := events.Decode(body)
	if err != nil || !notifies(e.Type) {
		e = events.Event{}
	}
	e.Position = events.PositionOf(m.ID)
	return e
}

// note passes an event to its buyer's pages and keeps it. A gap in the positions means that events were missed, so
// all pages are disconnected. l.mu is held.
func (l *Live) note(e events.Event) {
	if e.Position <= l.last { // seen before
		return
	}
	if l.last != 0 && e.Position != l.last+1 {
		l.recent = nil
		l.cutAll("missed")
	}
	l.last = e.Position
	if e.Type == "" {
		return
	}
	if len(l.recent) >= 2*recentEvents {
		l.recent = slices.Clone(l.recent[len(l.recent)-recentEvents:])
	}
	l.recent = append(l.recent, e)
	for p := range l.pages[e.Buyer] {
		if p.events == nil {
			continue
		}
		select {
		case p.events <- e:
		default:
			l.cut(p, "slow")
		}
	}
}
