// Package spread provides what a sale over several shards needs beyond a sale in one: the home segment of a buyer, the
// division of the stock, the policy that moves units between segments, the protocol of a move, and the proof that a
// sale is sold out.
//
// A sale with spread K has K segments, numbered from 0, each in a shard of its own. SQL records how many units each
// segment owns, its allocation. A segment in Redis is derived from its allocation and its orders, as a whole sale is
// derived from its stock. The package accesses neither store: Mover works on two interfaces.
package spread

import (
	"fmt"

	"sluice/backend/sale"
)

// ValidateSpread returns an error unless a sale may have k segments in a deployment with this number of shards.
func ValidateSpread(k, shards int) error {
	switch {
	case k < 1 || k > sale.MaxSpread:
		return fmt.Errorf("must be between 1 and %d", sale.MaxSpread)
	case k > max(shards, 1):
		return fmt.Errorf("must be at most the number of shards, which is %d (--shards)", max(shards, 1))
	}
	return nil
}

// Home returns the segment, from 0 to k-1, that decides all purchases of a buyer. If k is below 2, it returns 0. The
// result depends on the buyer and on k alone, and must not change while a sale with k segments exists: rows in SQL are
// assigned to segments by it.
func Home(buyer string, k int) int {
	if k < 2 {
		return 0
	}
	// FNV-1a of 64 bits, then the finalizer of MurmurHash3: the remainder needs well mixed low bits, and the segment must
	// be independent of other uses of FNV.
	h := uint64(14695981039346656037)
	for i := range len(buyer) {
		h = (h ^ uint64(buyer[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return int((h ^ h>>33) % uint64(k))
}

// Divide divides units over k segments as evenly as possible. The segments that get one unit more begin at first, which
// is taken modulo k: a caller that divides several times passes a different first, such as a version.
func Divide(units int64, k int, first int64) []int64 {
	k = max(k, 1)
	shares := make([]int64, k)
	for i := range shares {
		shares[i] = units / int64(k)
	}
	for i := range units % int64(k) {
		shares[(first+i)%int64(k)]++
	}
	return shares
}
