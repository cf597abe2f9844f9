package rehearsal

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// Addresses is the method by which simulated buyers get different source addresses.
type Addresses string

// The values of Addresses.
const (
	Loopback  Addresses = "loopback"  // each buyer connects to a local edge from its own address in 127.0.0.0/8
	Forwarded Addresses = "forwarded" // the edge trusts this machine's X-Forwarded-For
	Single    Addresses = "single"    // all buyers share the address of this machine, and its limits
)

// Description explains the effect on the result.
func (a Addresses) Description() string {
	switch a {
	case Loopback:
		return "Each buyer had its own loopback address."
	case Forwarded:
		return "Each buyer had its own address in X-Forwarded-For, which the edge trusts from this machine."
	}
	return "All buyers shared one address, because the edge does not trust this machine's X-Forwarded-For " +
		"(trusted_proxies in its policy). Limits by address therefore rejected more buyers than in a real sale."
}

// forwarded returns address i for X-Forwarded-For, in 198.18.0.0/15, which is for benchmarks (RFC 2544) and not used on
// the Internet.
func forwarded(i int) string {
	return net.IPv4(198, 18+byte(i>>16&1), byte(i>>8), byte(i)).String()
}

// loopback returns loopback address i, from 127.1.0.1 on.
func loopback(i int) net.IP {
	n := 1 + i%(126<<16-2)
	return net.IPv4(127, byte(1+n>>16), byte(n>>8), byte(n))
}

// edge is the edge under test, and the connections to it.
type edge struct {
	base      *url.URL
	addr      string // host:port
	addresses Addresses
	tls       *tls.Config
	timeout   time.Duration
	slots     chan struct{} // limits the open connections

	mu   sync.Mutex
	idle []net.Conn // shared, unless each address needs its own connections
}

func newEdge(base *url.URL, connections int, timeout time.Duration) *edge {
	x := &edge{base: base, addr: base.Host, addresses: Single, timeout: timeout, slots: make(chan struct{}, connections)}
	if base.Port() == "" {
		x.addr = net.JoinHostPort(base.Hostname(), map[string]string{"http": "80", "https": "443"}[base.Scheme])
	}
	if base.Scheme == "https" {
		x.tls = &tls.Config{ServerName: base.Hostname(), MinVersion: tls.VersionTLS12}
	}
	return x
}

// connection is used by one actor. Not safe for concurrent use.
type connection struct {
	*edge
	address  int
	conn     net.Conn
	read     *bufio.Reader
	slotWait time.Duration // time spent waiting for a slot: a delay of this machine
}

func (x *edge) open(address int) *connection { return &connection{edge: x, address: address} }

// perAddress reports whether a connection belongs to one address.
func (x *edge) perAddress() bool { return x.addresses == Loopback }

// connect opens a connection if there is none. fresh reports whether it is new.
func (l *connection) connect(ctx context.Context) (fresh bool, err error) {
	if l.conn != nil {
		return false, nil
	}
	begun := time.Now()
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	l.slotWait = time.Since(begun)
	conn := l.takeIdle()
	fresh = conn == nil
	if fresh {
		d := net.Dialer{Timeout: l.timeout}
		if l.perAddress() {
			d.LocalAddr = &net.TCPAddr{IP: loopback(l.address)}
		}
		if conn, err = d.DialContext(ctx, "tcp", l.addr); err != nil {
			<-l.slots
			return false, err
		}
		if l.tls != nil {
			conn = tls.Client(conn, l.tls)
		}
	}
	l.conn, l.read = conn, bufio.NewReaderSize(conn, 2048)
	return fresh, nil
}

func (x *edge) takeIdle() net.Conn {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.idle) == 0 {
		return nil
	}
	conn := x.idle[len(x.idle)-1]
	x.idle = x.idle[:len(x.idle)-1]
	return conn
}

func (l *connection) close() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
		<-l.slots
	}
}

// release makes the connection available to other actors, unless it belongs to the address.
func (l *connection) release() {
	if l.conn == nil || l.perAddress() {
		return
	}
	l.mu.Lock()
	l.idle = append(l.idle, l.conn)
	l.mu.Unlock()
	l.conn = nil
	<-l.slots
}

func (x *edge) closeIdle() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.idle {
		_ = c.Close()
	}
	x.idle = nil
}

// call is a request. Empty headers are not sent.
type call struct {
	method, path string
	token, key   string // Authorization, Idempotency-Key
	extraTimeout time.Duration
}

// send sends a request and reads the response. A reused connection that the server has closed is replaced and the
// request repeated, which is safe because purchases have an idempotency key.
func (l *connection) send(ctx context.Context, c call, resp *fasthttp.Response) error {
	for {
		fresh, err := l.connect(ctx)
		if err != nil {
			return err
		}
		if err = l.once(ctx, c, resp); err == nil {
			if resp.ConnectionClose() {
				l.close()
			} else {
				l.release()
			}
			return nil
		}
		l.close()
		if fresh || ctx.Err() != nil || !gone(err) {
			return err
		}
	}
}

// gone reports whether the server closed the connection before it read the request.
func gone(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	return !ok || !network.Timeout()
}

func (l *connection) once(ctx context.Context, c call, resp *fasthttp.Response) error {
	req := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(req)
	req.Header.SetMethod(c.method)
	req.Header.SetRequestURI(c.path)
	req.Header.SetHost(l.base.Host)
	req.Header.SetUserAgent("sluice-rehearse")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.key != "" {
		req.Header.Set("Idempotency-Key", `"`+c.key+`"`)
	}
	if l.addresses == Forwarded {
		req.Header.Set("X-Forwarded-For", forwarded(l.address))
	}
	if err := l.conn.SetDeadline(time.Now().Add(l.timeout + c.extraTimeout)); err != nil {
		return err
	}
	conn := l.conn
	// Do not wait for the response after ctx has ended.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	w := bufio.NewWriterSize(l.conn, 1024)
	if err := req.Write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	resp.Reset()
	resp.SkipBody = c.method == "HEAD"
	err := resp.ReadLimitBody(l.read, maxBody)
	if _, full := errors.AsType[*fasthttp.ErrSmallBuffer](err); full { // what is read stays in the buffer
		l.read = bufio.NewReaderSize(l.read, maxHeader)
		err = resp.ReadLimitBody(l.read, maxBody)
	}
	if err != nil {
		return fmt.Errorf("read response: %w", err)
	}
	return nil
}

// The limits of a response, in bytes. Without them, an edge with an error could use up the memory of this machine.
const (
	maxHeader = 64 << 10 // most headers fit into the buffer of a new connection
	maxBody   = 1 << 20
)
