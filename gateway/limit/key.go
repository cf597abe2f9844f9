package limit

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
)

// Key names a bucket among those of its rule. Keys are compared whole.
type Key struct{ hi, lo uint64 }

// Address is the key of a client address: an IPv4 address (also one mapped into IPv6) whole, an IPv6 address by its /64, which is the
// least that one customer of a provider has.
func Address(a netip.Addr) Key {
	b := a.As16()
	k := Key{hi: binary.BigEndian.Uint64(b[:8])}
	if a.Is4() || a.Is4In6() {
		k.lo = binary.BigEndian.Uint64(b[8:])
	}
	return k
}

// Spread is a number that differs between keys, for spreading them. Addresses of neighbours have neighbouring numbers.
func (k Key) Spread() uint64 { return k.hi ^ k.hi>>32 ^ k.lo }

// Namer makes keys of texts. Keys of one Namer are only equal to its own. Safe for concurrent use.
type Namer struct{ hi, lo maphash.Seed }

// NewNamer makes a Namer whose keys nobody can foresee.
func NewNamer() Namer { return Namer{hi: maphash.MakeSeed(), lo: maphash.MakeSeed()} }

// Text is the key of a text: 128 bits of keyed hash, so that a bucket is small however long the text is, and two texts that share
// one are not to be found.
func (n Namer) Text(s string) Key {
	return Key{hi: maphash.String(n.hi, s), lo: maphash.String(n.lo, s)}
}
