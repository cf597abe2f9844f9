package proxy

import (
	"errors"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// Forward sends the request to a backend and fills the response. If a backend cannot be reached, or fails in a way
// that permits it, the next one is tried. The response is empty if Forward returns an error: ErrHTTP10, or the
// failure of the last attempt.
func (p *Proxy) Forward(ctx *fasthttp.RequestCtx, r *Request) error {
	r.compose(ctx, p.config.TLS != nil)
	err := p.try(ctx, r)
	if err == nil && r.http10 {
		err = ErrHTTP10
	}
	if err != nil {
		ctx.Response.Reset()
		ctx.Response.Header.DisableNormalizing()
	}
	return err
}

// try attempts each backend once: first those that are considered up, then the others.
func (p *Proxy) try(ctx *fasthttp.RequestCtx, r *Request) error {
	all := p.upstreams
	first := int(p.turn.Add(1)) % len(all)
	tried, last := uint64(0), errNoBackend
	began := time.Now()
	for _, lastResort := range [...]bool{false, true} {
		for i := range all {
			n := (first + i) % len(all)
			u := all[n]
			if tried&(1<<n) != 0 || !u.enter(lastResort) {
				continue
			}
			tried |= 1 << n
			start := time.Now()
			err := p.attempt(ctx, r, u)
			took := time.Since(start)
			if r.LogAttempts {
				r.logAttempt(ctx, u, err, took)
			}
			u.leave(err)
			if err == nil {
				u.seconds.Observe(took.Seconds())
				return nil
			}
			if last = err; !retryable(err, r.Repeatable, time.Since(began)) {
				return err
			}
		}
	}
	return last
}

func (r *Request) logAttempt(ctx *fasthttp.RequestCtx, u *upstream, err error, took time.Duration) {
	a := &r.Attempts
	if len(a.Upstreams) > 0 {
		a.Upstreams, a.Statuses = append(a.Upstreams, ", "...), append(a.Statuses, ", "...)
		a.Seconds = append(a.Seconds, ", "...)
	}
	status := ctx.Response.StatusCode()
	switch {
	case errors.Is(err, errTimeout):
		status = fasthttp.StatusGatewayTimeout
	case err != nil:
		status = fasthttp.StatusBadGateway
	}
	a.Upstreams = append(a.Upstreams, u.address...)
	a.Statuses = strconv.AppendInt(a.Statuses, int64(status), 10)
	a.Seconds = strconv.AppendFloat(a.Seconds, took.Seconds(), 'f', 3, 64)
}

// retryWindow is the time after the start of the first attempt in which a timeout leads to an attempt at another
// backend, like nginx's proxy_next_upstream_timeout. With the default timeouts a purchase is retried once, and waiting
// for an order is not.
const retryWindow = 8 * time.Second

// retryable reports whether another backend may be tried after err, which occurred this long after the first attempt
// began. A request that was not sent may always be retried. One without a response may have been processed, and must
// be repeatable.
func retryable(err error, repeatable bool, after time.Duration) bool {
	return errors.Is(err, errDial) ||
		repeatable && (errors.Is(err, errBroken) || errors.Is(err, errTimeout) && after < retryWindow)
}

// attempt sends the request to one backend. If a pooled connection turns out to be closed, which is no sign of a failed
// backend, attempt closes the others and opens a new one. Before a request that must not be repeated, it checks whether
// the pooled connection is open.
func (p *Proxy) attempt(ctx *fasthttp.RequestCtx, r *Request, u *upstream) error {
	c := u.pooled()
	if c != nil && !r.Repeatable && !c.isOpen() {
		_ = c.Close()
		u.flush()
		c = nil
	}
	if c != nil {
		err := p.exchange(ctx, r, u, c)
		if !errors.Is(err, errBroken) {
			return err
		}
		if u.flush(); !r.Repeatable {
			return err
		}
	}
	c, err := u.connect()
	if err != nil {
		return errDial
	}
	return p.exchange(ctx, r, u, c)
}
