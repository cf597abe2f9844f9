package rehearsal

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/internal/loop"
)

// maxProbes is the number of requests after which the probe assumes that there is no limit by address. One machine can
// hardly exceed a higher limit.
const maxProbes = 500

// detectAddresses selects how buyers get different source addresses: loopback addresses if the edge is on this
// machine, otherwise X-Forwarded-For if the edge trusts it.
func (x *edge) detectAddresses(ctx context.Context) error {
	addresses, err := net.DefaultResolver.LookupIPAddr(ctx, x.base.Hostname())
	if err != nil {
		return fmt.Errorf("edge %s: resolve its host: %w", x.base, err)
	}
	if slices.ContainsFunc(addresses, isLoopback) {
		x.addresses = Loopback
		l := x.open(maxProbes)
		defer l.close()
		if _, err := x.listSales(ctx, l); err == nil {
			return nil
		}
	}
	return x.testForwarded(ctx)
}

// isLoopback reports whether an address is in 127.0.0.0/8. The name localhost usually has ::1 before 127.0.0.1.
func isLoopback(a net.IPAddr) bool { return a.IP.IsLoopback() && a.IP.To4() != nil }

// testForwarded uses up the limit of one address in X-Forwarded-For. If another address is then refused as well, the
// edge ignores the header.
func (x *edge) testForwarded(ctx context.Context) error {
	x.addresses = Forwarded
	first := x.open(maxProbes)
	defer first.close()
	for i := range maxProbes {
		status, err := x.listSales(ctx, first)
		if err != nil {
			return fmt.Errorf("edge %s does not respond: start it, or set --target to its address (%w)", x.base, err)
		}
		if status != fasthttp.StatusTooManyRequests {
			continue
		}
		if i == 0 { // another client has used the limit up
			loop.Sleep(ctx, time.Second)
			continue
		}
		other := x.open(2 * maxProbes)
		defer other.close()
		if status, err = x.listSales(ctx, other); err != nil {
			return err
		}
		if status == fasthttp.StatusTooManyRequests {
			x.addresses = Single
		}
		return nil
	}
	return nil // there is no limit by address
}

// listSales requests the list of sales, to which every limit by address applies.
func (x *edge) listSales(ctx context.Context, l *connection) (status int, err error) {
	var resp fasthttp.Response
	err = l.send(ctx, call{method: "GET", path: "/v1/sales"}, &resp)
	return resp.StatusCode(), err
}

// isBackend reports whether the target answers a request that edges reject: it is a backend, without an edge.
func (x *edge) isBackend(ctx context.Context) bool {
	l := x.open(maxProbes)
	defer l.close()
	var resp fasthttp.Response
	err := l.send(ctx, call{method: "HEAD", path: "/.sluice/signals"}, &resp)
	return err == nil && bytes.HasPrefix(resp.Header.ContentType(), []byte("text/event-stream"))
}
