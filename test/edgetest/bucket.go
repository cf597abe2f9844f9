package edgetest

import "math/big"

// Bucket is nginx's limit_req as its documentation describes it, for one key of one rule, in fractions: without a unit,
// without rounding and without a clock. It is slow and easy to verify:
//
//	e = max(0, excess - rate*dt + 1); refuse if e > burst, and write nothing; else store e and now
//
// A new bucket begins at 0, so burst + 1 requests pass immediately. The zero value is a new bucket. Its time never runs
// backwards.
type Bucket struct {
	excess big.Rat
	last   int64 // us
	used   bool
}

// Excess returns the content of the bucket after a request at now (us), and whether the request passes. rate is in
// requests per microsecond.
func (b *Bucket) Excess(rate *big.Rat, burst, now int64) (e *big.Rat, passes bool) {
	e = new(big.Rat)
	if b.used {
		dt := max(0, now-b.last)
		drained := new(big.Rat).Mul(rate, new(big.Rat).SetInt64(dt))
		e.Sub(&b.excess, drained).Add(e, one)
		if e.Sign() < 0 {
			e.SetInt64(0)
		}
	}
	return e, e.Cmp(new(big.Rat).SetInt64(burst)) <= 0
}

// Store records a request that passes.
func (b *Bucket) Store(e *big.Rat, now int64) {
	b.excess.Set(e)
	b.last, b.used = max(b.last, now), true
}

var one = big.NewRat(1, 1)

// Remaining returns how many requests pass immediately after one that left e in the bucket.
func Remaining(e *big.Rat, burst int64) int64 {
	return floor(new(big.Rat).Sub(new(big.Rat).SetInt64(burst), e))
}

// Next returns the microseconds until Remaining grows.
func Next(e, rate *big.Rat, burst int64) *big.Rat {
	left := new(big.Rat).Sub(new(big.Rat).SetInt64(burst), e)
	left.Sub(left, new(big.Rat).SetInt64(floor(left)))
	return left.Sub(one, left).Quo(left, rate)
}

// Wait returns the microseconds after which a request passes that would have left e in the bucket.
func Wait(e, rate *big.Rat, burst int64) *big.Rat {
	over := new(big.Rat).Sub(e, new(big.Rat).SetInt64(burst))
	return over.Quo(over, rate)
}

// Delay returns the microseconds by which a request that leaves e in the bucket is ahead of the rate.
func Delay(e, rate *big.Rat) *big.Rat { return new(big.Rat).Quo(e, rate) }

func floor(r *big.Rat) int64 {
	return new(big.Int).Div(r.Num(), r.Denom()).Int64() // Euclidean, and Denom is positive: rounds down
}

// Ceil returns r rounded up.
func Ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }
