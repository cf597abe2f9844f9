package livestats

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Sample is what happened in one second, and how things were at its end. It never changes once it is made.
type Sample struct {
	At int64 `json:"at"` // Unix milliseconds
	// Counts are what was counted since the sample before: "rule:NAME:VERDICT", "edge:unauthorized", "edge:malformed", "repeated:STATE" of edges, "purchase:OUTCOME" of backends,
	// and "rows" that orders have become. What is 0 is left out.
	Counts  map[string]float64 `json:"counts"`
	Latency *Latency           `json:"latency"` // of purchases, as backends answer them; null: there were none
	Queue   *QueueFigures      `json:"queue"`   // null: Redis did not answer
	Books   *BookFigures       `json:"totals"`  // null: SQL did not answer
}

// Latency is within how many milliseconds so many per cent of purchases were answered.
type Latency struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// QueueFigures are all shards together.
type QueueFigures struct {
	Ready         int64    `json:"ready"`
	Delayed       int64    `json:"delayed"`
	Leased        int64    `json:"leased"`
	Leases        int64    `json:"leases"`
	Dead          int64    `json:"dead"`
	OldestSeconds float64  `json:"oldest_age_seconds"`
	PerSecond     float64  `json:"drained_per_second"`
	DrainSeconds  *float64 `json:"drain_seconds"` // null: not known, or nothing leaves the queue
}

// BookFigures are all sales together, and the number of the last line of the desk log.
type BookFigures struct {
	Sales int64 `json:"sales"`
	Stock int64 `json:"stock"`
	Sold  int64 `json:"sold"`
	Log   int64 `json:"log"`
}

const (
	rowsKey = "rows"
	// secondsKey begins the keys of the buckets of the purchase histogram, which end with their upper bound. Each holds what its bound and all below hold.
	secondsKey = "seconds:"
)

// figures are counters by key.
type figures map[string]float64

func (f figures) add(more figures) {
	for key, n := range more {
		f[key] += n
	}
}

// since is what was counted after before. A counter that has gone down began anew.
func (f figures) since(before figures) figures {
	delta := figures{}
	for key, n := range f {
		if was := before[key]; n >= was {
			n -= was
		}
		if n > 0 {
			delta[key] = n
		}
	}
	return delta
}

// counts is f without the histogram.
func (f figures) counts() map[string]float64 {
	all := maps.Clone(map[string]float64(f))
	maps.DeleteFunc(all, func(key string, _ float64) bool { return strings.HasPrefix(key, secondsKey) })
	return all
}

func (f figures) latency() *Latency {
	type bucket struct{ bound, n float64 }
	var buckets []bucket
	for key, n := range f {
		if text, ok := strings.CutPrefix(key, secondsKey); ok {
			if bound, err := strconv.ParseFloat(text, 64); err == nil {
				buckets = append(buckets, bucket{bound, n})
			}
		}
	}
	slices.SortFunc(buckets, func(a, b bucket) int { return int(math.Copysign(1, a.bound-b.bound)) })
	if len(buckets) == 0 || buckets[len(buckets)-1].n == 0 {
		return nil
	}
	within := func(share float64) float64 {
		rank, low, below := share*buckets[len(buckets)-1].n, 0.0, 0.0
		for _, b := range buckets {
			if b.n >= rank && b.n > below {
				if math.IsInf(b.bound, 1) {
					return low * 1000
				}
				return (low + (b.bound-low)*(rank-below)/(b.n-below)) * 1000
			}
			low, below = b.bound, max(below, b.n)
		}
		return low * 1000
	}
	return &Latency{within(.50), within(.95), within(.99)}
}
