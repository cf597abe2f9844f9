package keyspace

import (
	"encoding/base64"
	"encoding/binary"
	"iter"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"sluice/backend/sale"
)

// Slots holds the order ids of one buyer in a sale as the hash Shard.Buyers stores them: comma-separated by slot, from
// 1. The slot of a returned order is empty. Empty slots at the end are omitted. ":<request>" (see Request) follows an
// order without a dedup key. The requests of returned orders follow the slots, each as ";<order id>:<request>".
// lua/redis/include/slots.lua reads and writes the same text; a test proves that both assign the same slots. The zero
// value holds no order.
type Slots string

// split returns the texts of the slots, at least one, and the requests of returned orders with their first semicolon.
func (s Slots) split() (slots []string, returned string) {
	held := string(s)
	if at := strings.IndexByte(held, ';'); at >= 0 {
		held, returned = held[:at], held[at:]
	}
	return strings.Split(held, ","), returned
}

// orderOf returns the order id in the text of a slot.
func orderOf(slot string) string {
	id, _, _ := strings.Cut(slot, ":")
	return id
}

// All returns the orders by slot. It skips empty slots.
func (s Slots) All() iter.Seq2[int, sale.OrderID] {
	return func(yield func(int, sale.OrderID) bool) {
		slots, _ := s.split()
		for i, text := range slots {
			if id, err := sale.ParseOrderID(orderOf(text)); err == nil && !yield(i+1, id) {
				return
			}
		}
	}
}

// Find returns the slot of an order, or 0.
func (s Slots) Find(id sale.OrderID) int {
	for slot, held := range s.All() {
		if held == id {
			return slot
		}
	}
	return 0
}

// Count returns the number of orders.
func (s Slots) Count() (n int) {
	slots, _ := s.split()
	for _, text := range slots {
		if text != "" {
			n++
		}
	}
	return n
}

// Empty returns slot if it is empty, else the first empty slot.
func (s Slots) Empty(slot int) int {
	slots, _ := s.split()
	if slot > len(slots) || slots[slot-1] == "" {
		return slot
	}
	if i := slices.Index(slots, ""); i >= 0 {
		return i + 1
	}
	return len(slots) + 1
}

// With returns s with an order in slot, from 1. It replaces the order in that slot and its request.
func (s Slots) With(id sale.OrderID, slot int) Slots {
	slots, returned := s.split()
	for len(slots) < slot {
		slots = append(slots, "")
	}
	slots[slot-1] = id.String()
	return Slots(strings.Join(slots, ",") + returned)
}

// WithoutRequests returns the slots with order ids only.
func (s Slots) WithoutRequests() Slots {
	slots, _ := s.split()
	for i, text := range slots {
		slots[i] = orderOf(text)
	}
	return Slots(strings.Join(slots, ","))
}

// WithRequestsOf returns s with the requests of other, so that a repeated request gets the same answer from s. A
// request for an order that s does not hold is added as that of the most recently returned order.
func (s Slots) WithRequestsOf(other Slots) Slots {
	slots, returned := s.split()
	held, gone := other.split()
	for _, entry := range append(strings.Split(gone, ";"), held...) {
		id, request, found := strings.Cut(entry, ":")
		if !found || strings.Contains(string(s), ":"+request) {
			continue
		}
		if at := slices.Index(slots, id); at >= 0 {
			slots[at] = entry
		} else {
			returned += ";" + entry
		}
	}
	return Slots(strings.Join(slots, ",") + returned)
}

// Request returns what Slots stores of a request key: 11 characters, a hash of 64 bits. It is compared with the
// requests of the same buyer in the same sale only. A client that chooses two keys with the same hash gets the same
// order for both.
func Request(key string) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], xxhash.Sum64String(key))
	return base64.RawURLEncoding.EncodeToString(b[:])
}
