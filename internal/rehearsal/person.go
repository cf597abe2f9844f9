package rehearsal

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// player lets one of a crowd do what it does.
type player struct {
	*exchange
	tally   *tally
	sale    string
	opening time.Time
	retries int
	kept    atomic.Int64 // people whose context ended before they had an answer to their purchase
}

// until sleeps until so long after the opening; false when ctx ends first.
func (p *player) until(ctx context.Context, at time.Duration) bool {
	wait := time.Until(p.opening.Add(at))
	if wait <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *player) now() time.Duration { return time.Since(p.opening) }

// play is one of the crowd, from its coming to its going.
func (p *player) play(ctx context.Context, a Actor, token, buyer string) {
	l := p.open(a.Address)
	defer l.drop()
	if a.Kind.Bot() {
		p.bot(ctx, l, a, token, buyer)
		return
	}
	p.person(ctx, l, a, token, buyer)
}

func (p *player) person(ctx context.Context, l *line, a Actor, token, buyer string) {
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	if !p.until(ctx, a.At) {
		return
	}
	err := l.send(ctx, call{method: "GET", path: "/v1/sales/" + p.sale, token: token}, resp)
	switch {
	case ctx.Err() != nil:
		p.kept.Add(1)
		return
	case err == nil && resp.StatusCode() == fasthttp.StatusOK:
		p.tally.looked(p.now() - a.At)
	}
	// A person who sees nothing still wants it. Thinking begins when the page is there: who waits longer for it wants it later.
	at := p.now() + a.Think
	for try := 0; ; try++ {
		if !p.until(ctx, at) {
			p.kept.Add(1)
			return
		}
		w := p.buy(ctx, l, a, token, at, resp)
		if ctx.Err() != nil && w.outcome == "" {
			p.kept.Add(1)
			return
		}
		if w.order != "" {
			p.tally.won(buyer, w.order)
			if a.Patient {
				p.await(ctx, l, token, w.order, resp)
			}
			return
		}
		if w.back == 0 {
			return
		}
		if try >= p.retries {
			p.tally.giveUp(w.outcome)
			return
		}
		at = p.now() + w.back
	}
}

// bot sends its requests at its own pace, whatever is answered.
func (p *player) bot(ctx context.Context, l *line, a Actor, token, buyer string) {
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	for try := range botTries {
		at := a.At + time.Duration(try)*botPause
		if !p.until(ctx, at) {
			return
		}
		if a.Kind == Repeater && try > 0 {
			l.drop()
			l.address = MaxBuyers + 1 + a.Address*botTries + try // beyond all others of the crowd
		}
		if w := p.buy(ctx, l, a, token, at, resp); w.order != "" {
			p.tally.won(buyer, w.order)
		}
	}
}

// verdict is what a purchase request came to.
type verdict struct {
	outcome Outcome
	order   string
	back    time.Duration // after which to come back; 0: not at all
}

// noAnswerPause is after how long a person presses again who got no answer.
const noAnswerPause = time.Second

func (p *player) buy(ctx context.Context, l *line, a Actor, token string, at time.Duration, resp *fasthttp.Response) verdict {
	sent := p.now()
	l.waited = 0
	err := l.send(ctx, call{method: "POST", path: "/v1/sales/" + p.sale + "/orders", token: token, key: "rehearse-" + a.Name}, resp)
	if err != nil && ctx.Err() != nil {
		return verdict{} // nobody waits for the answer any more
	}
	got := answer{at: at, took: p.now() - at, late: max(sent-at, 0) + l.waited, kind: a.Kind}
	if err != nil {
		got.outcome = NoAnswer
		p.tally.add(got)
		return verdict{outcome: NoAnswer, back: noAnswerPause}
	}
	var w verdict
	got.outcome, got.rule = judgeAnswer(resp)
	w.outcome = got.outcome
	switch got.outcome {
	case Accepted, Replayed:
		w.order = field(resp.Body(), "order_id")
	case Limited, Unavailable, NotOpen:
		w.back = retryAfter(resp)
	}
	p.tally.add(got)
	return w
}

// judgeAnswer names the answer to a purchase.
func judgeAnswer(resp *fasthttp.Response) (o Outcome, rule string) {
	if resp.StatusCode() == fasthttp.StatusAccepted {
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

// field is a string in a JSON object that holds none of that name deeper down. The set-up's own answers have no escapes in those that are asked for.
func field(body []byte, name string) string {
	_, rest, ok := bytes.Cut(body, []byte(`"`+name+`":"`))
	if !ok {
		return ""
	}
	value, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(value)
}

// violated is the first of the policies that a 429 names.
func violated(body []byte) string {
	_, rest, ok := bytes.Cut(body, []byte(`"violated-policies":["`))
	if !ok {
		return "unnamed"
	}
	rule, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(rule)
}

// longestBack is the longest that a person heeds Retry-After.
const longestBack = time.Minute

func retryAfter(resp *fasthttp.Response) time.Duration {
	n, err := strconv.Atoi(string(resp.Header.Peek("Retry-After")))
	if err != nil || n < 1 {
		n = 1
	}
	return min(time.Duration(n)*time.Second, longestBack)
}

// await asks for an order until it is a row, as the page does.
func (p *player) await(ctx context.Context, l *line, token, order string, resp *fasthttp.Response) {
	const wait, most = 10 * time.Second, 6
	begun := p.now()
	for range most {
		err := l.send(ctx, call{method: "GET", path: "/v1/orders/" + order + "?wait=" + wait.String(), token: token, patience: wait}, resp)
		if errors.Is(err, context.Canceled) || ctx.Err() != nil {
			return
		}
		if err == nil && resp.StatusCode() == fasthttp.StatusOK && field(resp.Body(), "status") == "created" {
			p.tally.row(p.now() - begun)
			return
		}
		if err != nil || resp.StatusCode() != fasthttp.StatusOK {
			if !p.until(ctx, p.now()+retryAfter(resp)) {
				return
			}
		}
	}
}
