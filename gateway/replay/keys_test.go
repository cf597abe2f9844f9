package replay

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"sluice/gateway/limit"
)

func TestKeysAreAddressesAndIPv6Networks(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:0:1:2:3:4:5": "2001:db8:0:1::/64",
		"fe80::1%eth0": "fe80::/64",
	} {
		if got := addressName(netip.MustParseAddr(text)).String(); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

// countsOf counts a request of a key.
func countsOf(t *keyTable, name keyName) *keyCounts {
	return t.count(testNames.Text(name.String()), name)
}

var testNames = limit.NewNamer()

// With more keys than fit, the memory must be bounded, the worst keys found, and the percentiles approximately correct.
func TestKeyTableContinuesWithASample(t *testing.T) {
	const most, keys = 1000, 100_000
	table := newKeyTable(most)
	for i := range keys {
		k := countsOf(table, keyName{buyer: fmt.Sprint("buyer ", i)})
		k.requests = 10
		if i%4 == 0 {
			k.refused[0] += 5 // a quarter of the keys has half of its requests refused
		}
		if i%100 == 0 {
			worst := countsOf(table, keyName{buyer: "worst"})
			worst.requests += 99
			worst.refused[0] += 90
		}
		if len(table.keys) > most {
			t.Fatalf("%d keys in memory, at most %d allowed", len(table.keys), most)
		}
	}
	r := replayer{addresses: newKeyTable(1), buyers: table}
	if top := r.tops(1, 0, func(k *keyCounts) uint32 { return k.refused[0] }); len(top) != 1 || top[0].Key != "worst" {
		t.Errorf("the worst key is %v", top)
	}
	got := table.shares(0)
	if !got.Sampled || math.Abs(float64(got.Keys)/keys-1) > 0.5 ||
		math.Abs(float64(got.Refused)/float64(got.Keys)-0.25) > 0.15 {
		t.Errorf("estimated %+v for %d keys, a quarter of them refused", got, keys)
	}
	if got.P50 != 0 || got.P90 != 0.5 {
		t.Errorf("the percentiles are %+v, want 0 and 0.5", got)
	}
}

func TestKeyTableIsExactUpToItsCapacity(t *testing.T) {
	table := newKeyTable(1000)
	for i := range 100 {
		k := countsOf(table, keyName{address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})})
		k.requests, k.refused[1] = 100, uint32(i)
	}
	if got, want := table.shares(
		1,
	), (KeyShares{Keys: 100, Refused: 99, P50: 0.49, P90: 0.89, P99: 0.98, Max: 0.99}); got != want {
		t.Errorf("shares are %+v, want %+v", got, want)
	}
	r := replayer{addresses: table, buyers: newKeyTable(1)}
	if top := r.tops(2, 1, func(k *keyCounts) uint32 { return k.refused[1] }); len(top) != 2 ||
		top[0].Key != "10.0.0.99" || top[1].Key != "10.0.0.98" {
		t.Errorf("the top keys are %v", top)
	}
}
