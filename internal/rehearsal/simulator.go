package rehearsal

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fastjson"

	"sluice/internal/loop"
)

type player struct {
	*run
	actor
	token, buyer string
	conn         *connection
	resp         *fasthttp.Response // of the last request
}

// until waits until a time relative to the opening. It returns false if ctx ends first.
func (r *run) until(ctx context.Context, at time.Duration) bool {
	if wait := time.Until(r.opening.Add(at)); wait > 0 {
		loop.Sleep(ctx, wait)
	}
	return ctx.Err() == nil
}

func (p *player) simulate(ctx context.Context) {
	p.conn, p.resp = p.edge.open(p.Address), fasthttp.AcquireResponse()
	defer p.conn.close()
	defer fasthttp.ReleaseResponse(p.resp)
	if p.Kind.Bot() {
		p.bot(ctx)
	} else {
		p.shopper(ctx)
	}
}

// shopper buys until it has a final response or no retries. If ctx ends first, its last response counts, or NoAnswer if
// there was none or another request had been sent.
func (p *player) shopper(ctx context.Context) {
	last := NoAnswer
	if !p.until(ctx, p.At) {
		p.tally.count(&p.tally.unfinished, last)
		return
	}
	err := p.conn.send(ctx, call{method: "GET", path: "/v1/sales/" + p.sale.ID, token: p.token}, p.resp)
	if err == nil && ctx.Err() == nil && p.resp.StatusCode() == fasthttp.StatusOK {
		p.tally.note(&p.tally.pageViews, p.now()-p.At)
	}
	// Thinking begins when the page has arrived. A shopper without a page buys as well.
	at := p.now() + p.Think
	for try := 0; ; try++ {
		if !p.until(ctx, at) {
			p.tally.count(&p.tally.unfinished, last)
			return
		}
		w := p.buy(ctx, at)
		if ctx.Err() != nil && w.outcome == "" {
			p.tally.count(&p.tally.unfinished, NoAnswer)
			return
		}
		last = w.outcome
		if w.order != "" {
			p.tally.won(p.buyer, w.order)
			if p.Patient {
				p.await(ctx, w.order)
			}
			return
		}
		if w.outcome == Forged { // the token of a shopper is valid
			p.tally.count(&p.tally.gaveUp, NoAnswer)
		}
		if w.retryAfter == 0 {
			return
		}
		if try >= p.Workload.Retries {
			p.tally.count(&p.tally.gaveUp, last)
			return
		}
		at = p.now() + w.retryAfter
	}
}

// bot sends its requests at a fixed rate, independent of the responses.
func (p *player) bot(ctx context.Context) {
	for try := range botTries {
		at := p.At + time.Duration(try)*botPause
		if !p.until(ctx, at) {
			return
		}
		if p.Kind == repeater && try > 0 {
			p.conn.close()
			p.conn.address = MaxBuyers + 1 + p.Address*botTries + try // not an address of other actors
		}
		if w := p.buy(ctx, at); w.order != "" {
			p.tally.won(p.buyer, w.order)
		}
	}
}

type result struct {
	outcome    Outcome
	order      string
	retryAfter time.Duration // 0: do not retry
}

// retryPause is the time after which a shopper retries a purchase without a response.
const retryPause = time.Second

// buy sends a purchase request that was planned for a time.
func (p *player) buy(ctx context.Context, at time.Duration) result {
	sent := p.now()
	p.conn.slotWait = 0
	path := "/v1/sales/" + p.sale.ID + "/orders"
	err := p.conn.send(ctx, call{method: "POST", path: path, token: p.token, key: "rehearse-" + p.Name}, p.resp)
	if err != nil && ctx.Err() != nil {
		return result{} // the rehearsal was stopped
	}
	got := response{at: at, took: p.now() - at, late: max(sent-at, 0) + p.conn.slotWait, kind: p.Kind}
	w := result{outcome: NoAnswer, retryAfter: retryPause}
	if err == nil {
		w, got.rule = classify(p.resp)
	}
	got.outcome = w.outcome
	p.tally.add(got)
	return w
}

// classify returns the result of a purchase with a response, and the rule of a refusal by a limit.
func classify(resp *fasthttp.Response) (r result, rule string) {
	order, code := field(resp.Body(), "order_id"), field(resp.Body(), "code")
	switch {
	case resp.StatusCode() == fasthttp.StatusAccepted && order != "":
		r = result{outcome: Accepted, order: order}
		if len(resp.Header.Peek("Idempotency-Replayed")) > 0 {
			r.outcome = Replayed
		}
		return r, ""
	case code != "":
		r.outcome = Outcome(code)
	case resp.StatusCode() == fasthttp.StatusServiceUnavailable:
		r.outcome = Unavailable
	default:
		r.outcome = Unexpected
	}
	if group := r.outcome.Of(); group == Throttled || group == Failed || r.outcome == NotOpen {
		r.retryAfter = retryAfter(resp)
	}
	if r.outcome == Limited {
		rule = violated(resp.Body())
	}
	return r, rule
}

// maxText is the length of the longest text that is read from a response, in bytes. The report contains it.
const maxText = 256

// field returns a string of a JSON response, or "" if there is none or if it is too long.
func field(body []byte, keys ...string) string {
	text := fastjson.GetString(body, keys...)
	if len(text) > maxText {
		return ""
	}
	return text
}

// violated returns the first policy that a 429 names.
func violated(body []byte) string { return cmp.Or(field(body, "violated-policies", "0"), "unnamed") }

// maxRetryAfter bounds the Retry-After that a shopper follows, in seconds.
const maxRetryAfter = 60

func retryAfter(resp *fasthttp.Response) time.Duration {
	n, err := strconv.Atoi(string(resp.Header.Peek("Retry-After")))
	if err != nil || n < 1 {
		n = 1
	}
	return time.Duration(min(n, maxRetryAfter)) * time.Second
}

// await polls an order until it is a row, as the buyer page does.
func (p *player) await(ctx context.Context, order string) {
	const wait, most = 10 * time.Second, 6
	status := call{
		method: "GET", path: "/v1/orders/" + order + "?wait=" + wait.String(), token: p.token, extraTimeout: wait,
	}
	begun := p.now()
	for range most {
		err := p.conn.send(ctx, status, p.resp)
		answered := err == nil && p.resp.StatusCode() == fasthttp.StatusOK
		switch {
		case ctx.Err() != nil:
			return
		case answered && field(p.resp.Body(), "status") == "created":
			p.tally.note(&p.tally.rows, p.now()-begun)
			return
		case !answered:
			loop.Sleep(ctx, retryAfter(p.resp))
		}
	}
}
