package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// crowd sends purchases at a fixed rate, independent of the answers. Each buyer retries until the purchase is accepted
// or rejected, buyTimeout has passed, or the sale ends.
type crowd struct {
	stage   *stage
	history *History
	rate    int // new buyers a second
	random  *rand.Rand
	places  chan struct{} // bounds the buyers that wait concurrently

	mu   sync.Mutex
	open []string // sales
}

const (
	buyTimeout = 20 * time.Second
	mostAtOnce = 600
)

func newCrowd(s *stage, h *History, seed uint64, rate int) *crowd {
	return &crowd{
		stage:   s,
		history: h,
		rate:    rate,
		random:  rand.New(rand.NewPCG(seed, 1)),
		places:  make(chan struct{}, mostAtOnce),
	}
}

// offers sets the sales that new buyers choose from.
func (c *crowd) offers(sales ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = sales
}

// run starts buyers until ctx ends, and returns when all of them have finished.
func (c *crowd) run(ctx context.Context) {
	tick := time.NewTicker(time.Second / time.Duration(c.rate))
	defer tick.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.mu.Lock()
		open := c.open
		c.mu.Unlock()
		if len(open) == 0 {
			continue
		}
		b := &buyer{
			crowd: c, at: n, place: Place{open[c.random.IntN(len(open))], fmt.Sprint("b", n)},
			random: rand.New(rand.NewPCG(c.random.Uint64(), 0)),
		}
		if b.random.IntN(300) == 0 {
			b.place.Buyer = oddPrefix + b.place.Buyer
		}
		select {
		case c.places <- struct{}{}:
		default: // too many wait already
			continue
		}
		all.Go(func() {
			defer func() { <-c.places }()
			b.buy(ctx)
		})
	}
}

type buyer struct {
	crowd  *crowd
	place  Place
	at     int // the backend of the next request
	random *rand.Rand
	token  string
}

func (b *buyer) buy(ctx context.Context) {
	var err error
	if b.token, err = b.crowd.stage.key.Sign(b.place.Buyer, time.Hour); err != nil {
		return
	}
	switch b.random.IntN(10) {
	case 0: // clicks twice, and the clicks reach different backends
		var both sync.WaitGroup
		twin := *b
		twin.at, twin.random = b.at+1, rand.New(rand.NewPCG(b.random.Uint64(), 0))
		both.Go(func() { twin.buyUntilAnswered(ctx, "first") })
		b.buyUntilAnswered(ctx, "first")
		both.Wait()
	case 1: // closes the connection before the answer, then retries
		short, cancel := context.WithTimeout(ctx, time.Duration(b.random.IntN(20))*time.Millisecond)
		b.request(short, "first")
		cancel()
		b.buyUntilAnswered(ctx, "first")
	case 2: // buys a second unit
		b.buyUntilAnswered(ctx, "first")
		b.buyUntilAnswered(ctx, "second")
	case 3: // retries much later
		b.buyUntilAnswered(ctx, "first")
		b.wait(ctx, 5*time.Second)
		b.buyUntilAnswered(ctx, "first")
	default:
		b.buyUntilAnswered(ctx, "first")
	}
}

// buyUntilAnswered retries until there is an answer, or buyTimeout has passed.
func (b *buyer) buyUntilAnswered(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, buyTimeout)
	defer cancel()
	for ctx.Err() == nil {
		a := b.request(ctx, key)
		if a.status != 0 && a.status != 503 && a.Code != "sale-paused" {
			return
		}
		b.at++
		b.wait(ctx, 400*time.Millisecond)
	}
}

func (b *buyer) request(ctx context.Context, key string) answer {
	backends := b.crowd.stage.backends
	sent := b.crowd.history.sends(b.place)
	a := call(ctx, "POST", backends[b.at%len(backends)].base+"/v1/sales/"+b.place.Sale+"/orders", b.token, "", key)
	b.crowd.history.answered(Request{b.place, key}, a, sent)
	return a
}

// wait waits for a random time below bound, or until ctx ends.
func (b *buyer) wait(ctx context.Context, bound time.Duration) {
	t := time.NewTimer(time.Duration(b.random.Int64N(int64(bound))))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
