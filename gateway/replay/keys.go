package replay

import (
	"cmp"
	"hash/maphash"
	"net/netip"
	"slices"

	"sluice/gateway/limit"
	"sluice/gateway/policy"
)

// keyName is an IPv4 address, an IPv6 /64 network, or a buyer.
type keyName struct {
	address netip.Addr // the zero Addr for a buyer
	buyer   string
}

func addressName(a netip.Addr) keyName {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		prefix, _ := a.Prefix(64)
		return keyName{address: prefix.Addr()}
	}
	return keyName{address: a}
}

// kind returns the key of the rules that count by k.
func (k keyName) kind() policy.Key {
	if k.address.IsValid() {
		return policy.ByIP
	}
	return policy.ByToken
}

func (k keyName) String() string {
	switch {
	case k.kind() == policy.ByToken:
		return k.buyer
	case k.address.Is6():
		return netip.PrefixFrom(k.address, 64).String()
	}
	return k.address.String()
}

type keyCounts struct {
	name     keyName
	requests uint32
	refused  [2]uint32 // by each policy
	only     [2]uint32 // by this policy, and not by the other
	rule     [2]*rule  // the rule of the last refusal
}

// keyTable counts by key in bounded memory. When it is full it continues with a sample: the keys whose hash is below a
// limit, which is halved each time. The counts of the sample are exact. The table also keeps the keys with the most
// refusals, whose counts may be too low.
type keyTable struct {
	capacity int
	keys     map[limit.Key]*keyCounts
	seed     maphash.Seed
	bits     int // the sample contains the keys whose hash begins with this many zero bits
}

func newKeyTable(capacity int) *keyTable {
	return &keyTable{capacity: capacity, keys: map[limit.Key]*keyCounts{}, seed: maphash.MakeSeed()}
}

func (t *keyTable) sampled(k limit.Key) bool {
	return t.bits == 0 || maphash.Comparable(t.seed, k)>>(64-t.bits) == 0
}

// count counts a request of a key. It returns the counts of the key, which are valid until the next call.
func (t *keyTable) count(k limit.Key, name keyName) *keyCounts {
	c := t.keys[k]
	if c == nil {
		if len(t.keys) >= t.capacity {
			t.shrink()
		}
		c = &keyCounts{name: name}
		t.keys[k] = c
	}
	c.requests++
	return c
}

// shrink frees at least half of the table.
func (t *keyTable) shrink() {
	type worst struct {
		key     limit.Key
		refused uint32
	}
	var rest []worst
	for {
		inSample := 0
		rest = rest[:0]
		for k, c := range t.keys {
			if t.sampled(k) {
				inSample++
			} else {
				rest = append(rest, worst{k, c.refused[0] + c.refused[1]})
			}
		}
		if inSample <= t.capacity/4 {
			break
		}
		t.bits++
	}
	slices.SortFunc(rest, func(a, b worst) int { return cmp.Compare(b.refused, a.refused) })
	for i, w := range rest {
		if i >= t.capacity/4 || w.refused == 0 {
			delete(t.keys, w.key)
		}
	}
}

// shares returns the number of keys, the number of keys with a refusal by the policy, and the percentiles of the
// refused share of a key's requests. With a sample, the numbers are estimates.
func (t *keyTable) shares(side int) KeyShares {
	var shares []float64
	hit := 0
	for k, c := range t.keys {
		if !t.sampled(k) {
			continue
		}
		share := float64(c.refused[side]) / float64(c.requests)
		if share > 0 {
			hit++
		}
		shares = append(shares, share)
	}
	slices.Sort(shares)
	at := func(percent int64) float64 {
		if len(shares) == 0 {
			return 0
		}
		return shares[nearestRank(int64(len(shares)), percent)]
	}
	return KeyShares{
		Keys: len(shares) << t.bits, Refused: hit << t.bits, Sampled: t.bits > 0, P50: at(50), P90: at(90),
		P99: at(99), Max: at(100),
	}
}
