package sim

import (
	"math/rand/v2"
	"time"

	"sluice/backend/sale"
	"sluice/backend/spread"
)

// plan is the configuration of a run, derived from its seed.
type plan struct {
	Shops                   []shop
	Shards                  int
	Buyers, Workers, Batch  int
	Rush                    time.Duration // the buyers arrive within this time
	MaxReady                int64         // of each shard; 0: many
	Faults, Deaths          float64       // share of calls
	Freezes, Stops          float64       // share of steps
	MaxAttempts, MaxCrashes int
	Steps                   int // with faults; after them the system runs until no work is left
	// Gentle: replies are lost and calls are executed twice, and no other fault occurs. No lease may expire then.
	Gentle bool
	// Tardy: only takes and acknowledgements meet a fault, and it is always the same: they are executed late, after the
	// worker gave up and repeated them. One worker takes orders one by one, so that orders wait when a late call arrives.
	Tardy bool
	// Guarded: the data of Redis is verified, kept in journals, and rebuilt after each of the disasters.
	Guarded   bool
	Disasters []disaster
}

// shop is one sale.
type shop struct {
	ID              string
	Stock, PerBuyer int
	Hold            time.Duration // 0: orders need no payment
	Spread          int           // number of segments; 0: the sale is in one shard
}

const (
	lease = 4 * time.Second
	// backoffCap is the longest wait of a failed message.
	backoffCap = 2 * time.Second
)

func planOf(rnd *rand.Rand) plan {
	pick := func(from, to int) int { return from + rnd.IntN(to-from+1) }
	p := plan{
		Shards:      1,
		Buyers:      pick(3, 8),
		Workers:     pick(2, 3),
		Batch:       pick(1, 5),
		Rush:        []time.Duration{5 * time.Second, 2 * time.Second, 100 * time.Millisecond}[rnd.IntN(3)],
		Faults:      []float64{0, 0.05, 0.15, 0.3}[rnd.IntN(4)],
		Deaths:      []float64{0, 0.01, 0.04}[rnd.IntN(3)],
		Freezes:     []float64{0, 0.01}[rnd.IntN(2)],
		Stops:       []float64{0, 0.01}[rnd.IntN(2)],
		MaxAttempts: pick(1, 3),
		MaxCrashes:  pick(1, 2),
		Steps:       pick(80, 260),
	}
	if rnd.IntN(4) == 0 {
		p.MaxReady = int64(pick(1, 3))
	}
	shops := []int{1, 1, 1, 2, 3}[rnd.IntN(5)]
	if shops > 1 {
		p.Shards = pick(1, 3)
	}
	for i := range shops {
		s := shop{ID: string(rune('a' + i)), Stock: pick(1, 6), PerBuyer: pick(1, 2)}
		if rnd.IntN(2) == 0 {
			s.Hold = time.Duration(pick(2, 9)) * time.Second
		}
		p.Shops = append(p.Shops, s)
	}
	switch rnd.IntN(5) {
	case 0:
		p.Gentle, p.Faults, p.Deaths, p.Freezes = true, 0.2, 0, 0
	case 1:
		p.Guarded = true
		p.Steps += 200
		for at := pick(60, 200); at < p.Steps; at += pick(20, 80) {
			p.Disasters = append(p.Disasters, disaster{At: at, Kind: calamity(rnd.IntN(int(calamities))), Back: pick(5, 60)})
		}
	}
	if !p.Gentle && !p.Guarded && rnd.IntN(5) == 0 {
		p.delayCalls()
	}
	if rnd.IntN(3) == 0 {
		p.Shards = max(p.Shards, pick(2, 4))
		for i := range p.Shops {
			if i == 0 || rnd.IntN(2) == 0 {
				p.Shops[i].Spread = pick(2, p.Shards)
			}
		}
	}
	return p
}

// delayCalls makes the run Tardy.
func (p *plan) delayCalls() {
	p.Tardy, p.Faults, p.Deaths, p.Workers, p.Batch = true, 0.5, 0, 1, 1
	p.Gentle, p.Guarded, p.Disasters = false, false, nil
}

// parts returns the parts of the sale.
func (s shop) parts() []spread.Part { return spread.PartsOf(sale.Sale{ID: s.ID, Spread: s.Spread}) }

// shop returns the sale with this id.
func (w *world) shop(id string) shop {
	for _, s := range w.Shops {
		if s.ID == id {
			return s
		}
	}
	return shop{}
}
