package limit

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"net/netip"
)

// Key identifies a bucket of a rule. Keys are compared in full.
type Key struct{ hi, lo uint64 }

// Address returns the key of a client address: the whole address for IPv4 and IPv4-mapped IPv6, and the /64 network
// for other IPv6 addresses, which is the smallest network that providers assign to a customer.
func Address(a netip.Addr) Key {
	b := a.As16()
	k := Key{hi: binary.BigEndian.Uint64(b[:8])}
	if a.Is4() || a.Is4In6() {
		k.lo = binary.BigEndian.Uint64(b[8:])
	}
	return k
}

// Network returns the key of the network with this prefix length, from 0 to 64, of an IPv6 address. An IPv4 address
// keeps its key: its first 64 bits are zero.
func (k Key) Network(bits int) Key {
	return Key{hi: k.hi &^ (uint64(math.MaxUint64) >> bits), lo: k.lo}
}

// Spread returns a number for distributing keys over shards. Adjacent addresses have adjacent numbers.
func (k Key) Spread() uint64 { return k.hi ^ k.hi>>32 ^ k.lo }

// Namer derives keys from texts. Keys of different Namers cannot be compared. Safe for concurrent use.
type Namer struct{ hi, lo maphash.Seed }

// NewNamer returns a Namer with a random seed.
func NewNamer() Namer { return Namer{hi: maphash.MakeSeed(), lo: maphash.MakeSeed()} }

// Text returns the key of a text: a keyed hash of 128 bits. Buckets are small for texts of any length, and collisions
// cannot be constructed.
func (n Namer) Text(s string) Key {
	return Key{hi: maphash.String(n.hi, s), lo: maphash.String(n.lo, s)}
}
