package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// askEvery is how old the Sentinels' answer may be for a new connection, and how often they are asked while one is not coming about.
	queryInterval = 100 * time.Millisecond
	// rememberFor is how long an answer counts against those of earlier failovers: Sentinels hear of a failover one after the other, within a second or two, and whoever asks in
	// between must not go back. After that it may be that somebody has taught them anew.
	maxAnswerAge = 10 * time.Second
)

// master is the Redis that Sentinels name, and all connections to it. A connection to a machine that is cut off is silent, not closed: whoever uses it waits until his time
// is over, and the pools are full of them. So they are closed as soon as another master is named. It is safe for concurrent use.
//
// The library's own client of Sentinels is not used: it keeps to one Sentinel, and if that is on the machine that is cut off, each question about the master ends with the time
// for its connection, and it never asks another.
type master struct {
	sentinels *sentinels
	tls       *tls.Config
	queries   singleflight.Group

	mu        sync.Mutex
	latest    answer    // of the master; the zero word: nobody has been asked yet
	latestAt  time.Time // when that was said last
	queriedAt time.Time // when anything was said last
	open      map[*trackedConn]struct{}
}

// followed is a connection to the master.
type trackedConn struct {
	*net.TCPConn
	addr   string
	master *master
}

// errMoved says that another master was named meanwhile.
var errMasterChanged = errors.New("the master of Redis has changed")

// dial connects to the master. While no connection comes about it goes on asking who the master is.
func (m *master) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	if _, bounded := ctx.Deadline(); !bounded { // those of a subscription
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.sentinels.timeout+DialTimeout)
		defer cancel()
	}
	for {
		addr, err := m.find(ctx)
		if err != nil {
			return nil, err
		}
		conn, err := m.connect(ctx, network, addr)
		if !errors.Is(err, errMasterChanged) {
			return conn, err
		}
	}
}

// find tells the master's address.
func (m *master) find(ctx context.Context) (string, error) {
	m.mu.Lock()
	known, fresh := m.latest, time.Since(m.queriedAt) < queryInterval
	m.mu.Unlock()
	if fresh {
		return known.master, nil
	}
	answer := m.queries.DoChan("", func() (any, error) {
		w, err := m.sentinels.query(context.Background(), known.peers) // for all who wait
		if err != nil {
			return "", err
		}
		return m.update(w), nil
	})
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("no Sentinel has answered: %w", ctx.Err())
	case a := <-answer:
		return a.Val.(string), a.Err
	}
}

// move notes what Sentinels say, closes the connections to whoever is not the master, and tells the master's address.
func (m *master) update(w answer) string {
	now := time.Now()
	m.mu.Lock()
	m.queriedAt = now
	if w.epoch >= m.latest.epoch || w.epoch == 0 || now.Sub(m.latestAt) > maxAnswerAge {
		m.latest, m.latestAt = w, now
	}
	addr := m.latest.master
	var stale []*trackedConn
	for c := range m.open {
		if c.addr != addr {
			stale = append(stale, c)
		}
	}
	m.mu.Unlock()
	for _, c := range stale {
		_ = c.Close()
	}
	return addr
}

// connect makes a connection to this address, unless another master is named first: then it returns errMoved.
func (m *master) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go m.watch(ctx, addr, cancel)
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		if errors.Is(context.Cause(ctx), errMasterChanged) {
			err = errMasterChanged
		}
		return nil, err
	}
	c := &trackedConn{TCPConn: conn.(*net.TCPConn), addr: addr, master: m}
	m.mu.Lock()
	if m.latest.master != addr {
		m.mu.Unlock()
		_ = conn.Close()
		return nil, errMasterChanged
	}
	m.open[c] = struct{}{}
	m.mu.Unlock()
	if m.tls == nil {
		return c, nil
	}
	secure := tls.Client(c, m.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return secure, nil
}

// watch asks for the master until ctx ends, and cancels when it is not this one.
func (m *master) watch(ctx context.Context, addr string, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(queryInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now, err := m.find(ctx); err == nil && now != addr {
			cancel(errMasterChanged)
			return
		}
	}
}

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.master.mu.Lock()
	delete(c.master.open, c)
	c.master.mu.Unlock()
	return c.TCPConn.Close()
}
