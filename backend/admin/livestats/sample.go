package livestats

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/backend/queue"
	"sluice/client"
)

// Sample holds what happened in one second, and the state at its end. It is immutable.
type Sample struct {
	At int64 `json:"at"` // Unix milliseconds
	// Counts are events since the previous sample, without zeros. Keys of edges: "rule:NAME:VERDICT", "edge:unauthorized",
	// "edge:malformed", "repeated:STATE". Keys of backends: "purchase:OUTCOME". "rows" are orders that became rows.
	Counts  map[string]float64 `json:"counts"`
	Latency *Latency           `json:"latency"` // of purchases at backends; null: no purchases
	Queue   *QueueCounts       `json:"queue"`   // null: Redis did not answer
	Totals  *Totals            `json:"totals"`  // null: SQL did not answer
}

// Latency holds percentiles in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// QueueCounts is the sum over all shards that are available.
type QueueCounts struct {
	client.QueueCounts
	PerSecond   float64 `json:"drained_per_second"`
	Unavailable []int   `json:"unavailable_shards,omitempty"`
}

// Unavailable returns the shards without counts.
func Unavailable(shards []*queue.Stats) (unavailable []int) {
	for i, s := range shards {
		if s == nil {
			unavailable = append(unavailable, i)
		}
	}
	return unavailable
}

// Counts returns the counts of a queue in the format of the admin API, without the time until it is empty.
func Counts(s queue.Stats) client.QueueCounts {
	return client.QueueCounts{
		Ready: s.Ready, Delayed: s.Delayed, Leased: s.Leased, Leases: s.Leases, Dead: s.Dead,
		OldestAgeSeconds: s.OldestAge.Seconds(),
	}
}

// DrainSeconds returns the time until a queue is empty, or nil if it is unknown.
func DrainSeconds(d time.Duration, known bool) *float64 {
	if !known {
		return nil
	}
	seconds := d.Seconds()
	return &seconds
}

// Totals is the sum over all sales, and the number of the last entry of the action log.
type Totals struct {
	Sales int64 `json:"sales"`
	Stock int64 `json:"stock"`
	Sold  int64 `json:"sold"`
	Log   int64 `json:"log"`
}

const (
	rowsKey = "rows"
	// secondsKey is the prefix of the buckets of the purchase histogram. The rest of the key is the upper bound. Buckets
	// are cumulative.
	secondsKey = "seconds:"
)

// counters holds counters by key.
type counters map[string]float64

func (c counters) add(more counters) {
	for key, n := range more {
		c[key] += n
	}
}

// since returns the finite increments of the counters from before to c. A counter that has decreased was reset to 0.
func (c counters) since(before counters) counters {
	delta := counters{}
	for key, n := range c {
		if was := before[key]; n >= was {
			n -= was
		}
		if n > 0 && !math.IsInf(n, 1) {
			delta[key] = n
		}
	}
	return delta
}

// counts returns c without the histogram.
func (c counters) counts() map[string]float64 {
	all := maps.Clone(c)
	maps.DeleteFunc(all, func(key string, _ float64) bool { return strings.HasPrefix(key, secondsKey) })
	return all
}

// latency interpolates the percentiles in the buckets. It returns nil if the histogram is empty.
func (c counters) latency() *Latency {
	type bucket struct{ bound, n float64 }
	var buckets []bucket
	for key, n := range c {
		if text, ok := strings.CutPrefix(key, secondsKey); ok {
			if bound, err := strconv.ParseFloat(text, 64); err == nil {
				buckets = append(buckets, bucket{bound, n})
			}
		}
	}
	slices.SortFunc(buckets, func(a, b bucket) int { return cmp.Compare(a.bound, b.bound) })
	if len(buckets) == 0 || buckets[len(buckets)-1].n == 0 {
		return nil
	}
	percentile := func(share float64) float64 {
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
	return &Latency{percentile(.50), percentile(.95), percentile(.99)}
}
