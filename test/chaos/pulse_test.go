package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// pulse sends purchases of new buyers at a fixed rate, each once, and records how long they wait: the availability that
// buyers see. Each beat is one buyer for each entrance.
type pulse struct {
	entrances []entrance

	mu    sync.Mutex
	beats []beat
	under map[int]time.Time // requests without an answer so far
}

// entrance is an entrance of the shop: several addresses, used in turn.
type entrance struct {
	name  string
	sale  string
	bases []string
}

// beat is one purchase.
type beat struct {
	at     time.Time // time of the request
	by     string    // the entrance
	took   time.Duration
	status int // 0: no answer
}

const (
	pulseEvery = 100 * time.Millisecond
	pulseSale  = "pulse"
)

// run sends beats until ctx ends, and returns when the last one is answered. Each buyer has its own connection.
func (p *pulse) run(ctx context.Context, s *stage, h *History) {
	p.under = map[int]time.Time{}
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(pulseEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for i, e := range p.entrances {
			all.Go(func() { p.beat(n*len(p.entrances)+i, e, e.bases[n%len(e.bases)], s, h) })
		}
	}
}

func (p *pulse) beat(n int, at entrance, base string, s *stage, h *History) {
	place := Place{at.sale, fmt.Sprint("pulse-", n)}
	bearer, err := s.key.Sign(place.Buyer, time.Hour)
	if err != nil {
		return
	}
	b := beat{at: time.Now(), by: at.name}
	p.mu.Lock()
	p.under[n] = b.at
	p.mu.Unlock()
	sent := h.sends(place)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	a := callBy(ctx, clientFrom(""), "POST", base+"/v1/sales/"+at.sale+"/orders", bearer, "", "first")
	h.answered(Request{place, "first"}, a, sent)
	b.took, b.status = time.Since(b.at), a.status
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.under, n)
	p.beats = append(p.beats, b)
}

// well reports whether purchases have succeeded without delay since an instant: at least enough of them were answered,
// all within a second and with success, and none has been waiting for longer than a second.
func (p *pulse) well(since time.Time, enough int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, b := range p.beats {
		if !b.at.Before(since) {
			if b.status != 202 || b.took > time.Second {
				return false
			}
			n++
		}
	}
	for _, at := range p.under {
		if time.Since(at) > time.Second {
			return false
		}
	}
	return n >= enough
}

// availability is the experience of buyers at one entrance between two instants.
type availability struct {
	asked, sold, busy, lost, other int           // busy: 503; lost: no answer
	longest                        time.Duration // of an answer
	slow                           int           // waited for more than a second
	silence                        time.Duration // the longest time within which nothing was sold
	until                          time.Duration // from the first moment to the last purchase that was slow or not sold
}

func (p *pulse) availability(by string, from, to time.Time) (f availability) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sold []time.Time
	for _, b := range p.beats {
		if b.by != by || b.at.Before(from) || b.at.After(to) {
			continue
		}
		f.asked++
		switch {
		case b.status == 202:
			f.sold++
			sold = append(sold, b.at.Add(b.took))
		case b.status == 503:
			f.busy++
		case b.status == 0:
			f.lost++
		default:
			f.other++
		}
		f.longest = max(f.longest, b.took)
		if b.took > time.Second {
			f.slow++
		}
		if b.status != 202 || b.took > time.Second {
			f.until = max(f.until, b.at.Add(b.took).Sub(from))
		}
	}
	last := from
	slices.SortFunc(sold, time.Time.Compare)
	for _, at := range append(sold, to) {
		f.silence = max(f.silence, at.Sub(last))
		last = at
	}
	return f
}

// p99 returns the 99th percentile of the time until an answer.
func (p *pulse) p99(by string, from, to time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var took []time.Duration
	for _, b := range p.beats {
		if b.by == by && !b.at.Before(from) && !b.at.After(to) {
			took = append(took, b.took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(len(took)*99/100, len(took)-1)].Round(time.Millisecond)
}

func (f availability) String() string {
	return fmt.Sprintf(
		"%d requests, sold %d, 503 %d, no answer %d, other %d; longest wait %.1f s, %d above 1 s; nothing sold for %.1f "+
			"s; all well after %.1f s",
		f.asked,
		f.sold,
		f.busy,
		f.lost,
		f.other,
		f.longest.Seconds(),
		f.slow,
		f.silence.Seconds(),
		f.until.Seconds(),
	)
}
