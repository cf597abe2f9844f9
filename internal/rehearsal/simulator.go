package rehearsal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/internal/loop"
)

// simulator sends the requests of actors. Safe for concurrent use.
type simulator struct {
	*edge
	tally   *tally
	sale    string
	opening time.Time
	retries int
}

// until waits until a time relative to the opening. It returns false if ctx ends first.
func (p *simulator) until(ctx context.Context, at time.Duration) bool {
	if wait := time.Until(p.opening.Add(at)); wait > 0 {
		loop.Sleep(ctx, wait)
	}
	return ctx.Err() == nil
}

func (p *simulator) now() time.Duration { return time.Since(p.opening) }

// play simulates one actor.
func (p *simulator) play(ctx context.Context, a actor, token, buyer string) {
	l := p.open(a.Address)
	defer l.close()
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	if a.Kind.Bot() {
		p.bot(ctx, l, a, token, buyer, resp)
	} else {
		p.shopper(ctx, l, a, token, buyer, resp)
	}
}

// shopper buys until it has a final response or no retries. If ctx ends first, its last response counts, or NoAnswer if
// there was none or another request had been sent.
func (p *simulator) shopper(
	ctx context.Context, l *connection, a actor, token, buyer string, resp *fasthttp.Response,
) {
	last := NoAnswer
	if !p.until(ctx, a.At) {
		p.tally.interrupt(last)
		return
	}
	err := l.send(ctx, call{method: "GET", path: "/v1/sales/" + p.sale, token: token}, resp)
	if err == nil && ctx.Err() == nil && resp.StatusCode() == fasthttp.StatusOK {
		p.tally.note(&p.tally.pageViews, p.now()-a.At)
	}
	// Thinking begins when the page has arrived. A shopper without a page buys as well.
	at := p.now() + a.Think
	for try := 0; ; try++ {
		if !p.until(ctx, at) {
			p.tally.interrupt(last)
			return
		}
		w := p.buy(ctx, l, a, token, at, resp)
		if ctx.Err() != nil && w.outcome == "" {
			p.tally.interrupt(NoAnswer)
			return
		}
		last = w.outcome
		if w.order != "" {
			p.tally.won(buyer, w.order)
			if a.Patient {
				p.await(ctx, l, token, w.order, resp)
			}
			return
		}
		if w.outcome == Forged { // the token of a shopper is valid
			p.tally.giveUp(NoAnswer)
		}
		if w.retryAfter == 0 {
			return
		}
		if try >= p.retries {
			p.tally.giveUp(last)
			return
		}
		at = p.now() + w.retryAfter
	}
}

// bot sends its requests at a fixed rate, independent of the responses.
func (p *simulator) bot(
	ctx context.Context, l *connection, a actor, token, buyer string, resp *fasthttp.Response,
) {
	for try := range botTries {
		at := a.At + time.Duration(try)*botPause
		if !p.until(ctx, at) {
			return
		}
		if a.Kind == repeater && try > 0 {
			l.close()
			l.address = maxBuyers + 1 + a.Address*botTries + try // not an address of other actors
		}
		if w := p.buy(ctx, l, a, token, at, resp); w.order != "" {
			p.tally.won(buyer, w.order)
		}
	}
}

// result is the result of a purchase request.
type result struct {
	outcome    Outcome
	order      string
	retryAfter time.Duration // 0: do not retry
}

// retryPause is the time after which a shopper retries a purchase without a response.
const retryPause = time.Second

func (p *simulator) buy(
	ctx context.Context, l *connection, a actor, token string, at time.Duration, resp *fasthttp.Response,
) result {
	sent := p.now()
	l.slotWait = 0
	purchase := call{method: "POST", path: "/v1/sales/" + p.sale + "/orders", token: token, key: "rehearse-" + a.Name}
	err := l.send(ctx, purchase, resp)
	if err != nil && ctx.Err() != nil {
		return result{} // the rehearsal was stopped
	}
	got := response{at: at, took: p.now() - at, late: max(sent-at, 0) + l.slotWait, kind: a.Kind}
	if err != nil {
		got.outcome = NoAnswer
		p.tally.add(got)
		return result{outcome: NoAnswer, retryAfter: retryPause}
	}
	var w result
	got.outcome, got.rule = classify(resp)
	w.outcome = got.outcome
	switch group := got.outcome.Of(); {
	case group == Won:
		w.order = field(resp.Body(), "order_id")
	case group == Throttled, group == Failed, got.outcome == NotOpen:
		w.retryAfter = retryAfter(resp)
	}
	p.tally.add(got)
	return w
}

// classify returns the outcome of a purchase, and the rule of a refusal by a limit.
func classify(resp *fasthttp.Response) (o Outcome, rule string) {
	if resp.StatusCode() == fasthttp.StatusAccepted && field(resp.Body(), "order_id") != "" {
		if len(resp.Header.Peek("Idempotency-Replayed")) > 0 {
			return Replayed, ""
		}
		return Accepted, ""
	}
	code := field(resp.Body(), "code")
	switch {
	case code != "":
	case resp.StatusCode() == fasthttp.StatusServiceUnavailable:
		code = string(Unavailable)
	default:
		code = string(Unexpected)
	}
	if o = Outcome(code); o == Limited {
		rule = violated(resp.Body())
	}
	return o, rule
}

// field returns a string field of a JSON object, without parsing it. Responses have no escapes in the fields used
// here, and no nested fields with the same name.
func field(body []byte, name string) string { return textAfter(body, `"`+name+`":"`) }

// violated returns the first policy that a 429 names.
func violated(body []byte) string {
	return cmp.Or(textAfter(body, `"violated-policies":["`), "unnamed")
}

// textAfter returns the text between a prefix and the next quote, or "".
func textAfter(body []byte, prefix string) string {
	_, rest, _ := bytes.Cut(body, []byte(prefix))
	text, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(text)
}

// maxRetryAfter bounds the Retry-After that a shopper follows.
const maxRetryAfter = time.Minute

func retryAfter(resp *fasthttp.Response) time.Duration {
	n, err := strconv.Atoi(string(resp.Header.Peek("Retry-After")))
	if err != nil || n < 1 {
		n = 1
	}
	return min(time.Duration(n)*time.Second, maxRetryAfter)
}

// await polls an order until it is a row, as the buyer page does.
func (p *simulator) await(ctx context.Context, l *connection, token, order string, resp *fasthttp.Response) {
	const wait, most = 10 * time.Second, 6
	status := call{method: "GET", path: "/v1/orders/" + order + "?wait=" + wait.String(), token: token, extraTimeout: wait}
	begun := p.now()
	for range most {
		err := l.send(ctx, status, resp)
		if errors.Is(err, context.Canceled) || ctx.Err() != nil {
			return
		}
		if err == nil && resp.StatusCode() == fasthttp.StatusOK && field(resp.Body(), "status") == "created" {
			p.tally.note(&p.tally.rows, p.now()-begun)
			return
		}
		if err != nil || resp.StatusCode() != fasthttp.StatusOK {
			if !p.until(ctx, p.now()+retryAfter(resp)) {
				return
			}
		}
	}
}
