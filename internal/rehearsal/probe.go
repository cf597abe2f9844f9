package rehearsal

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// probes is how many requests it takes at most to meet a limit by address. A limit that lets more through at once would hardly be met by one machine either.
const probes = 500

// choose finds out how the crowd gets addresses of its own: on this machine by connecting from them; else by X-Forwarded-For, if the edge believes it.
func (x *exchange) choose(ctx context.Context) error {
	addresses, err := net.DefaultResolver.LookupIPAddr(ctx, x.base.Hostname())
	if err != nil {
		return fmt.Errorf("the edge %s cannot be found: %w", x.base, err)
	}
	if addresses[0].IP.IsLoopback() && addresses[0].IP.To4() != nil {
		x.addresses = Loopback
		l := x.open(probes)
		defer l.drop()
		if _, err := x.knock(ctx, l); err == nil {
			return nil
		}
	}
	return x.probe(ctx)
}

// probe finds out whether the edge believes X-Forwarded-For: one address in it is used up, and another one must still be let in.
func (x *exchange) probe(ctx context.Context) error {
	x.addresses = Forwarded
	first := x.open(probes)
	defer first.drop()
	for i := range probes {
		status, err := x.knock(ctx, first)
		if err != nil {
			return fmt.Errorf("the edge %s does not answer: %w", x.base, err)
		}
		if status != fasthttp.StatusTooManyRequests {
			continue
		}
		if i == 0 { // somebody else has used it up
			(&player{opening: time.Now()}).until(ctx, time.Second)
			continue
		}
		other := x.open(2 * probes)
		defer other.drop()
		if status, err = x.knock(ctx, other); err != nil {
			return err
		}
		if status == fasthttp.StatusTooManyRequests {
			x.addresses = Single
		}
		return nil
	}
	return nil // nobody limits by address
}

// knock asks for the list of sales, which every limit by address counts.
func (x *exchange) knock(ctx context.Context, l *line) (status int, err error) {
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	if err := l.send(ctx, call{method: "GET", path: "/v1/sales"}, resp); err != nil {
		return 0, err
	}
	return resp.StatusCode(), nil
}
