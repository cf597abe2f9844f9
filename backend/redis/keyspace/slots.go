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
// 1. The slot of a returned order is empty; the last slot is not. ":<request>" (see Request) follows an order without a
// dedup key. The requests of returned orders follow the slots, each as ";<order id>:<request>".
// lua/redis/include/slots.lua reads and writes the same text; a test proves that both assign the same slots. The zero
// value holds no order.
type Slots string

// split returns the slots, and the requests of returned orders with their first semicolon.
func (s Slots) split() (slots, returned string) {
	if at := strings.IndexByte(string(s), ';'); at >= 0 {
		return string(s[:at]), string(s[at:])
	}
	return string(s), ""
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
		slot := 0
		for text := range strings.SplitSeq(slots, ",") {
			slot++
			if id, err := sale.ParseOrderID(orderOf(text)); err == nil && !yield(slot, id) {
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
func (s Slots) Count() int {
	slots, _ := s.split()
	n := 0
	for text := range strings.SplitSeq(slots, ",") {
		if text != "" {
			n++
		}
	}
	return n
}

// Empty returns slot if it is empty, else the first empty slot.
func (s Slots) Empty(slot int) int {
	slots, _ := s.split()
	texts := strings.Split(slots, ",")
	if slot > len(texts) || texts[slot-1] == "" {
		return slot
	}
	for i, text := range texts {
		if text == "" {
			return i + 1
		}
	}
	return len(texts) + 1
}

// With returns s with an order in slot, from 1. It replaces the order in that slot and its request.
func (s Slots) With(id sale.OrderID, slot int) Slots {
	if s == "" && slot == 1 { // the common case
		return Slots(id.String())
	}
	slots, returned := s.split()
	texts := strings.Split(slots, ",")
	for len(texts) < slot {
		texts = append(texts, "")
	}
	texts[slot-1] = id.String()
	return Slots(strings.Join(texts, ",") + returned)
}

// WithoutRequests returns the slots with order ids only.
func (s Slots) WithoutRequests() Slots {
	slots, _ := s.split()
	if !strings.Contains(slots, ":") {
		return Slots(slots)
	}
	texts := strings.Split(slots, ",")
	for i, text := range texts {
		texts[i] = orderOf(text)
	}
	return Slots(strings.Join(texts, ","))
}

// WithRequestsOf returns s with the requests of other, so that a repeated request gets the same answer from s. A
// request of an order that s does not hold becomes that of the order returned last.
func (s Slots) WithRequestsOf(other Slots) Slots {
	slots, returned := s.split()
	texts := strings.Split(slots, ",")
	held, gone := other.split()
	for _, entry := range append(strings.Split(gone, ";"), strings.Split(held, ",")...) {
		id, request, found := strings.Cut(entry, ":")
		if !found || strings.Contains(string(s), ":"+request) {
			continue
		}
		at := slices.IndexFunc(texts, func(text string) bool { return text == id })
		if at >= 0 {
			texts[at] = entry
		} else {
			returned += ";" + entry
		}
	}
	return Slots(strings.Join(texts, ",") + returned)
}

// Request returns what Slots stores of a request key: 11 characters, a hash of 64 bits. It is compared with the
// requests of the same buyer in the same sale only. A client that chooses two keys with the same hash gets the same
// order for both.
func Request(key string) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], xxhash.Sum64String(key))
	return base64.RawURLEncoding.EncodeToString(b[:])
}
