package edgetest

import (
	"fmt"
	"iter"
	"strconv"
)

// 20,000 decisions keep an ordinary test run short; the seed is arbitrary.
const (
	usualDecisions = 20_000
	usualSeed      = 1
	traceLength    = 200
)

// CorpusPlan describes a corpus: a number of decisions on generated traces, which every edge replays. The same seed
// gives the same corpus.
type CorpusPlan struct {
	Decisions int
	Seed      uint64
}

// Corpus parses a plan from the values of two environment variables; empty ones select the default. For tests only: it
// panics if one is invalid.
func Corpus(decisions, seed string) CorpusPlan {
	c := CorpusPlan{Decisions: usualDecisions, Seed: usualSeed}
	if decisions != "" {
		n, err := strconv.Atoi(decisions)
		if err != nil || n < traceLength {
			panic(fmt.Sprintf("edgetest: %q decisions: want a number of at least %d", decisions, traceLength))
		}
		c.Decisions = n
	}
	if seed != "" {
		n, err := strconv.ParseUint(seed, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("edgetest: seed %q: want a whole number", seed))
		}
		c.Seed = n
	}
	return c
}

// Traces generates the traces, one after the other.
func (c CorpusPlan) Traces() iter.Seq[*Trace] {
	return func(yield func(*Trace) bool) {
		for done, i := 0, uint64(0); done < c.Decisions; i++ {
			n := min(traceLength, c.Decisions-done)
			if !yield(Generate(c.Seed+i, n)) {
				return
			}
			done += n
		}
	}
}
