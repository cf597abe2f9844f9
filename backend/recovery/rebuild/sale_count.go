package rebuild

import (
	"sluice/backend/audit"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
)

// saleCount counts the units of one sale, or of its segment in the shard, during a rebuild. It decides which order
// holds a unit and does no I/O. Orders are added in this order: rows, dead letters, queue, slots.
type saleCount struct {
	def  sale.Sale // Stock of a segment: the units of its allocation
	sold int64     // estimate of the number of rows
	part spread.Part

	left       int64
	allocation int64 // version of the allocation of a segment
	accepted   int64 // number of the last order within the part
	buyers     map[string]*holding

	queue     []sale.Order // messages that Redis held, the oldest first
	letters   []letter     // dead letters that Redis held
	returned  []any        // ids of cancelled rows; left includes their units
	requeued  []sale.Order // orders that had only a slot
	unbacked  []unbacked   // orders without a unit or slot
	removed   []string     // ids of dead letters to delete
	corrected int          // buyers with different slots in Redis
	report    audit.Report
	reason    string                // why the report is not balanced
	dead      map[sale.OrderID]bool // orders with dead letters; true if the letter holds no unit
}

// holding holds the slots of one buyer. seen reports that Redis has the same slots.
type holding struct {
	slots keyspace.Slots
	seen  bool
}

type letter struct {
	order  sale.Order
	backed bool
}

type unbacked struct {
	order  sale.Order
	reason string
}

func newSaleCount(def sale.Sale, sold int64, part spread.Part) *saleCount {
	return &saleCount{
		def: def, sold: sold, part: part, left: def.Stock,
		buyers: map[string]*holding{}, dead: map[sale.OrderID]bool{},
	}
}

func (c *saleCount) changed() bool {
	return len(c.requeued) > 0 || len(c.unbacked) > 0 || c.corrected > 0
}

func (c *saleCount) seen(o sale.Order) { c.accepted = max(c.accepted, o.Serial-c.part.Base()) }

// holds reports whether the buyer has a slot with the order.
func (c *saleCount) holds(o sale.Order) bool {
	h := c.buyers[o.Buyer]
	return h != nil && h.slots.Find(o.ID) > 0
}

// addRow adds an order of SQL. It holds a unit and its slot whatever Redis has.
func (c *saleCount) addRow(o sale.Order) {
	c.seen(o)
	switch {
	case c.holds(o): // read before its cancellation; its unit is returned when Redis is verified
		return
	case o.Status == sale.StatusCancelled:
		c.returned = append(c.returned, o.ID.String())
		return
	}
	c.left--
	c.assign(o)
}

func (c *saleCount) assign(o sale.Order) {
	h := c.buyers[o.Buyer]
	if h == nil {
		h = &holding{}
		c.buyers[o.Buyer] = h
	}
	h.slots, h.seen = h.slots.With(o.ID, o.Slot), false
}

// claim adds an accepted order that is not a row. If a unit is left and the buyer has an empty slot, it returns the
// order with its slot. Otherwise the order becomes a dead letter without a unit.
func (c *saleCount) claim(o sale.Order) (sale.Order, bool) {
	c.seen(o)
	slot := o.Slot
	if h := c.buyers[o.Buyer]; h != nil {
		slot = h.slots.Empty(o.Slot)
		if slot != o.Slot && h.slots.Count() >= c.def.PerBuyer {
			c.fail(o, "its buyer holds other orders in its slot")
			return o, false
		}
	}
	if c.left < 1 {
		c.fail(o, "its unit was sold again")
		return o, false
	}
	o.Slot = slot
	c.left--
	c.assign(o)
	return o, true
}

// fail makes an order a dead letter without a unit, for an admin to decide.
func (c *saleCount) fail(o sale.Order, reason string) {
	c.dead[o.ID] = true
	c.unbacked = append(c.unbacked, unbacked{o, reason})
}

// addOrphan adds an order of which Redis has only the slot.
func (c *saleCount) addOrphan(o sale.Order) {
	c.accepted++
	o.Serial = c.part.Base() + c.accepted
	if o, ok := c.claim(o); ok {
		c.requeued = append(c.requeued, o)
	}
}
