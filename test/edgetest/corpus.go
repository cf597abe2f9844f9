package edgetest

import (
	"fmt"
	"iter"
	"strconv"
)

// A Decisions of 20,000 keeps an ordinary test run short; the seed is any number.
const (
	usualDecisions = 20_000
	usualSeed      = 1
	traceLength    = 200
)

// A CorpusPlan is a number of decisions on generated traces, which every edge replays: the same seed is the same
// corpus.
type CorpusPlan struct {
	Decisions int
	Seed      uint64
}

// Corpus reads a plan from two texts, as the environment has them; empty ones are the usual plan. It panics on
// nonsense: it is for tests.
func Corpus(decisions, seed string) CorpusPlan {
	c := CorpusPlan{Decisions: usualDecisions, Seed: usualSeed}
	if decisions != "" {
		n, err := strconv.Atoi(decisions)
		if err != nil || n < traceLength {
			panic(fmt.Sprintf("edgetest: %q is no number of decisions from %d", decisions, traceLength))
		}
		c.Decisions = n
	}
	if seed != "" {
		n, err := strconv.ParseUint(seed, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("edgetest: %q is no seed", seed))
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
