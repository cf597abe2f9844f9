package keyspace

import (
	"iter"
	"strings"

	"sluice/backend/sale"
)

// Slots holds the order ids of one buyer in a sale as the hash Shard.Buyers stores them: comma-separated by slot, from
// 1. A slot whose order was returned is empty. lua/redis/include/slots.lua reads and writes the same text; a test
// proves that both assign the same slots. The zero value holds no order.
type Slots string

// All returns the orders by slot. It skips empty slots.
func (s Slots) All() iter.Seq2[int, sale.OrderID] {
	return func(yield func(int, sale.OrderID) bool) {
		slot := 0
		for text := range strings.SplitSeq(string(s), ",") {
			slot++
			if id, err := sale.ParseOrderID(text); err == nil && !yield(slot, id) {
				return
			}
		}
	}
}

// Find returns the slot of an order, or 0.
func (s Slots) Find(id sale.OrderID) int {
	want := id.String()
	for slot, rest := 1, string(s); rest != ""; slot++ {
		var text string
		if text, rest, _ = strings.Cut(rest, ","); text == want {
			return slot
		}
	}
	return 0
}

// Count returns the number of orders.
func (s Slots) Count() int {
	n := 0
	for text := range strings.SplitSeq(string(s), ",") {
		if text != "" {
			n++
		}
	}
	return n
}

// Empty returns slot if it is empty, else the first empty slot.
func (s Slots) Empty(slot int) int {
	texts := strings.Split(string(s), ",")
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

// With returns s with an order in slot, from 1. It replaces the order in that slot.
func (s Slots) With(id sale.OrderID, slot int) Slots {
	if s == "" && slot == 1 { // the common case
		return Slots(id.String())
	}
	texts := strings.Split(string(s), ",")
	for len(texts) < slot {
		texts = append(texts, "")
	}
	texts[slot-1] = id.String()
	return Slots(strings.Join(texts, ","))
}
