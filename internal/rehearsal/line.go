package rehearsal

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// Addresses is how the crowd has different ones.
type Addresses string

// The ways.
const (
	Loopback  Addresses = "loopback"  // the edge is on this machine: each comes from an address of 127.0.0.0/8 of its own
	Forwarded Addresses = "forwarded" // the edge believes this machine's X-Forwarded-For
	Single    Addresses = "single"    // all come from this machine's one address, and share its limit
)

// Told says in a sentence what an Addresses means for the result.
func (a Addresses) Told() string {
	switch a {
	case Loopback:
		return "Each buyer came from an address of its own on this machine."
	case Forwarded:
		return "The edge believes this machine's X-Forwarded-For, and each buyer had an address of its own in it."
	}
	return "All came from one address, since the edge does not believe this machine's X-Forwarded-For (trusted_proxies in its policy): limits by address refused buyers that they would let pass " +
		"in a real crowd, so this says how one address fares and not how the sale will."
}

// networkOfTests (RFC 2544) is where forwarded addresses are from: nobody real has one.
var networkOfTests = netip.MustParsePrefix("198.18.0.0/15")

// forwarded is the i-th address for X-Forwarded-For.
func forwarded(i int) string {
	base := networkOfTests.Addr().As4()
	n := uint32(base[0])<<24 | uint32(base[1])<<16 | uint32(i)%(1<<(32-networkOfTests.Bits()))
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}).String()
}

// loopback is the i-th address on this machine, from 127.1.0.1 on.
func loopback(i int) net.IP {
	n := 1 + i%(126<<16-2)
	return net.IPv4(127, byte(1+n>>16), byte(n>>8), byte(n))
}

// exchange connects to one edge.
type exchange struct {
	base      *url.URL
	addr      string // host:port
	addresses Addresses
	tls       *tls.Config
	timeout   time.Duration
	slots     chan struct{} // one for each connection that may be open

	mu   sync.Mutex
	idle []net.Conn // shared by all, where addresses are not a matter of the connection
}

func newExchange(base *url.URL, connections int, timeout time.Duration) *exchange {
	x := &exchange{base: base, addr: base.Host, addresses: Single, timeout: timeout, slots: make(chan struct{}, connections)}
	if base.Port() == "" {
		x.addr = net.JoinHostPort(base.Hostname(), map[string]string{"http": "80", "https": "443"}[base.Scheme])
	}
	if base.Scheme == "https" {
		x.tls = &tls.Config{ServerName: base.Hostname(), MinVersion: tls.VersionTLS12}
	}
	return x
}

// line is what one of the crowd talks through. It is for one goroutine.
type line struct {
	*exchange
	address int
	conn    net.Conn
	read    *bufio.Reader
	waited  time.Duration // for one of the slots, when it last connected: this machine's own fault
}

func (x *exchange) open(address int) *line { return &line{exchange: x, address: address} }

// own tells whether a connection is one address's.
func (x *exchange) own() bool { return x.addresses == Loopback }

// connect makes sure that there is a connection; fresh tells that nobody has used it before.
func (l *line) connect(ctx context.Context) (fresh bool, err error) {
	if l.conn != nil {
		return false, nil
	}
	begun := time.Now()
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	l.waited = time.Since(begun)
	conn := l.takeIdle()
	fresh = conn == nil
	if fresh {
		d := net.Dialer{Timeout: l.timeout}
		if l.own() {
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

func (x *exchange) takeIdle() net.Conn {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.idle) == 0 {
		return nil
	}
	conn := x.idle[len(x.idle)-1]
	x.idle = x.idle[:len(x.idle)-1]
	return conn
}

// drop closes the connection: nobody may use it again.
func (l *line) drop() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
		<-l.slots
	}
}

// rest gives the connection to whoever needs one next, if it is not this address's own.
func (l *line) rest() {
	if l.conn == nil || l.own() {
		return
	}
	l.mu.Lock()
	l.idle = append(l.idle, l.conn)
	l.mu.Unlock()
	l.conn = nil
	<-l.slots
}

// close ends all idle connections.
func (x *exchange) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.idle {
		_ = c.Close()
	}
	x.idle = nil
}

// call is one request. An empty field is not sent.
type call struct {
	method, path string
	token, key   string // Authorization, Idempotency-Key
	patience     time.Duration
}

// send makes one exchange; resp is valid when the error is nil. A connection that had been used before and was closed meanwhile is replaced: the server is free to close
// it, and a purchase that is sent again is the same purchase.
func (l *line) send(ctx context.Context, c call, resp *fasthttp.Response) error {
	for {
		fresh, err := l.connect(ctx)
		if err != nil {
			return err
		}
		if err = l.once(ctx, c, resp); err == nil {
			if resp.ConnectionClose() {
				l.drop()
			} else {
				l.rest()
			}
			return nil
		}
		l.drop()
		if fresh || ctx.Err() != nil || !gone(err) {
			return err
		}
	}
}

// gone tells that the other side had closed the connection before it read anything.
func gone(err error) bool {
	var timeout net.Error
	return !(errors.As(err, &timeout) && timeout.Timeout())
}

func (l *line) once(ctx context.Context, c call, resp *fasthttp.Response) error {
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
	if err := l.conn.SetDeadline(time.Now().Add(l.timeout + c.patience)); err != nil {
		return err
	}
	conn := l.conn
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })() // whoever is stopped does not wait for an answer
	w := bufio.NewWriterSize(l.conn, 1024)
	if err := req.Write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	resp.Reset()
	if err := resp.Read(l.read); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}
