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
	// queryInterval is the age up to which an answer is used for a new connection, and the interval of queries during a
	// dial.
	queryInterval = 100 * time.Millisecond
	// maxAnswerAge is the time during which answers with an earlier failover than the latest answer are ignored. Sentinels
	// receive the result of a failover within a second or two of each other, and a client must not return to the old
	// master meanwhile. After that time such an answer is accepted, because the Sentinels may have been reconfigured.
	maxAnswerAge = 10 * time.Second
	// lookInterval is the shortest time between two queries that redirected commands cause: while no node has the slot,
	// every command is redirected.
	lookInterval = queryInterval / 4
)

// finder finds the current master: sentinels, or slotMaster of a cluster.
type finder interface {
	// query returns the current master. known are the peers of the last answer.
	query(known []string) (answer, error)
	// limit bounds the time of a query.
	limit() time.Duration
	// forget makes the next query ignore earlier answers.
	forget()
}

// answer is the reply of one Sentinel, or of the nodes of a Redis Cluster.
type answer struct {
	master string   // address
	epoch  int64    // number of the failover that promoted the master; 0 if unknown
	peers  []string // addresses of the other Sentinels
}

// master tracks the master that the Sentinels or the nodes of a cluster report, and all connections to it. If the
// machine of the master is cut off, its connections stay open and silent, and callers wait for their timeouts.
// Therefore all connections are closed as soon as another master is reported. A master is safe for concurrent use.
//
// The library's Sentinel client is not used: it queries one Sentinel only, and if that is on the machine that is cut
// off, each query for the master times out.
type master struct {
	finder  finder
	tls     *tls.Config
	queries singleflight.Group

	mu        sync.Mutex
	latest    answer    // zero before the first answer
	latestAt  time.Time // time of the last answer that confirmed latest
	queriedAt time.Time // time of the last answer
	lookedAt  time.Time // start of the last lookAgain
	open      map[*trackedConn]struct{}
	failure   failure // of the last connection; zero if it was opened
}

// failure describes a failed attempt to connect to a server.
type failure struct {
	err  error
	addr string
	at   time.Time
}

// errMasterChanged reports that another server is the master now.
var errMasterChanged = errors.New("the master of Redis has changed")

// dial is connectAny, but reports a failure as the error of the first command on the connection. After several failed
// dials, the pool of the library would dial only once a second, even after another server has become the master.
func (m *master) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := m.connectAny(ctx, network, addr)
	if err != nil {
		return failedConn{err: err}, nil //nolint:nilerr // the first command returns it
	}
	return conn, nil
}

// connectAny connects to the master. It keeps querying for the master until a connection is open or fails.
func (m *master) connectAny(ctx context.Context, network, _ string) (net.Conn, error) {
	if _, bounded := ctx.Deadline(); !bounded { // a subscription has no deadline
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.finder.limit()+DialTimeout)
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

// find returns the address of the master.
func (m *master) find(ctx context.Context) (string, error) {
	m.mu.Lock()
	known, fresh := m.latest, time.Since(m.queriedAt) < queryInterval
	m.mu.Unlock()
	if fresh {
		return known.master, nil
	}
	result := m.queries.DoChan("", func() (any, error) {
		a, err := m.finder.query(known.peers)
		if err != nil {
			return "", err
		}
		return m.update(a), nil
	})
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("the master of Redis is not known: %w", ctx.Err())
	case r := <-result:
		return r.Val.(string), r.Err
	}
}

// update stores an answer, closes the connections to other servers, and returns the address of the master.
func (m *master) update(a answer) string {
	now := time.Now()
	m.mu.Lock()
	m.queriedAt = now
	if a.epoch >= m.latest.epoch || a.epoch == 0 || now.Sub(m.latestAt) > maxAnswerAge {
		m.latest, m.latestAt = a, now
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

// connect connects to addr. It returns errMasterChanged if another master is reported before the connection is open.
// After a failure it returns the same error for a queryInterval.
func (m *master) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	m.mu.Lock()
	last := m.failure
	m.mu.Unlock()
	if last.addr == addr && time.Since(last.at) < queryInterval {
		return nil, last.err
	}
	conn, err := m.connectNow(ctx, network, addr)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err != nil && m.latest.master != addr: // the answer that named another master has closed the connection
		return nil, errMasterChanged
	case ctx.Err() != nil:
	case err != nil:
		m.failure = failure{err, addr, time.Now()}
	default:
		m.failure = failure{}
	}
	return conn, err
}

// connectNow is connect without the memory of failures. It returns any error if another master is reported.
func (m *master) connectNow(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go m.follow(ctx, func(now string) {
		if now != addr {
			cancel()
		}
	})
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
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
	config := m.tls.Clone()
	config.ServerName, _, _ = net.SplitHostPort(addr)
	secure := tls.Client(c, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return secure, nil
}

// lookAgain queries for the master although the last answer is new: a server has answered that it is not the master.
func (m *master) lookAgain() {
	m.mu.Lock()
	now := time.Now()
	if now.Sub(m.lookedAt) < lookInterval {
		m.mu.Unlock()
		return
	}
	m.lookedAt, m.queriedAt = now, time.Time{}
	m.mu.Unlock()
	m.finder.forget()
	ctx, cancel := context.WithTimeout(context.Background(), m.finder.limit())
	defer cancel()
	_, _ = m.find(ctx) // an error occurs again at the next dial
}

// follow queries for the master in intervals until ctx ends, and calls each with every answer.
func (m *master) follow(ctx context.Context, each func(addr string)) {
	tick := time.NewTicker(queryInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if addr, err := m.find(ctx); err == nil { // an error occurs again at the next dial
			each(addr)
		}
	}
}
