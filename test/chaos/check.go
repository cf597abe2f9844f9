package chaos

import (
	"fmt"
	"slices"
)

// Verdict is the result of comparing the books with the history.
type Verdict struct {
	Lost       []string // a confirmed order that is neither a row nor a dead letter, or belongs to another buyer
	Unrecorded []string // a row or dead letter without a purchase or without a record
	Twice      []string // a buyer with more than a sale allows
	Units      []string // units that do not add up
	Unfinished []string // orders in the queue, and units that have not returned yet
	Contrary   []string // all others: answers, audits and books that contradict each other
}

// Violations returns all violations.
func (v Verdict) Violations() []string {
	return slices.Concat(v.Lost, v.Unrecorded, v.Twice, v.Units, v.Unfinished, v.Contrary)
}

// Check compares the stores with the answers that buyers and the admin received. It makes no calls.
func Check(h *History, b *Books) Verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := comparison{
		h: h, b: b, rows: map[string]Row{}, letters: map[string]Letter{}, live: map[string]int64{}, dead: map[string]int64{},
		held: map[Place][]string{},
	}
	c.readRows()
	c.readLetters()
	c.checkConfirmed()
	for id, r := range c.rows {
		c.checkRecorded("row", id, r.Place, r.Cancelled)
	}
	for id, l := range c.letters {
		c.checkRecorded("dead letter", id, l.Place, false)
	}
	c.checkHolders()
	c.checkUnits()
	v := c.Verdict
	v.Contrary = append(v.Contrary, h.Wrong...)
	for _, text := range b.Queue {
		v.Unfinished = append(v.Unfinished, "still in the queue: "+text)
	}
	v.Unfinished = append(v.Unfinished, b.Moving...)
	v.Twice = append(v.Twice, b.Divided...)
	for _, line := range b.Paused {
		v.Contrary = append(v.Contrary, "paused automatically: "+line)
	}
	return v
}

// comparison is the state of Check.
type comparison struct {
	Verdict

	h *History
	b *Books

	rows    map[string]Row     // by order id
	letters map[string]Letter  // by order id
	live    map[string]int64   // units of rows by sale
	dead    map[string]int64   // units of dead letters by sale
	held    map[Place][]string // order ids of rows and dead letters
}

func (c *comparison) readRows() {
	for _, r := range c.b.Rows {
		if _, again := c.rows[r.ID]; again {
			c.Twice = append(c.Twice, "order "+r.ID+" is two rows")
		}
		c.rows[r.ID] = r
		switch {
		case !r.Cancelled:
			c.live[r.Place.Sale]++
			c.held[r.Place] = append(c.held[r.Place], r.ID)
		case !c.h.Cancel[r.ID]:
			c.Contrary = append(c.Contrary, "order "+r.ID+" is cancelled without a request")
		}
		if r.Returning {
			c.Unfinished = append(c.Unfinished, "the unit of order "+r.ID+" has not returned")
		}
	}
}

func (c *comparison) readLetters() {
	for _, l := range c.b.Letters {
		c.letters[l.ID] = l
		if r, both := c.rows[l.ID]; both && !r.Cancelled {
			continue // counted as a row
		}
		c.held[l.Place] = append(c.held[l.Place], l.ID)
		if l.Unbacked {
			c.Units = append(c.Units, "order "+l.ID+" of "+l.Place.Buyer+" was accepted and has no unit")
			continue
		}
		c.dead[l.Place.Sale]++
	}
}

// checkConfirmed verifies that every confirmed order is a row or a dead letter of its buyer.
func (c *comparison) checkConfirmed() {
	for id, p := range c.h.Confirmed {
		r, isRow := c.rows[id]
		l, isDead := c.letters[id]
		switch {
		case !isRow && !isDead:
			note(&c.Lost, "%s of %s was confirmed to %s and is lost", id, p.Sale, p.Buyer)
		case isRow && r.Place != p || isDead && l.Place != p:
			note(&c.Lost, "%s of %s was confirmed to %s and belongs to another buyer", id, p.Sale, p.Buyer)
		}
	}
}

// checkRecorded verifies that an order has a purchase, and an answer or a record in a journal or in Redis.
func (c *comparison) checkRecorded(what, id string, p Place, cancelled bool) {
	_, confirmed := c.h.Confirmed[id]
	_, written := c.b.Journal[id]
	// a cancelled order is no longer in a slot
	recorded := confirmed || written || slices.Contains(c.b.Holders[p], id) || cancelled && c.h.Cancel[id]
	if c.h.Asked[p] == 0 || !recorded {
		note(&c.Unrecorded, "%s %s of %s in %s: purchased %d times, recorded: %t",
			what, id, p.Buyer, p.Sale, c.h.Asked[p], recorded)
	}
}

// checkHolders verifies that no buyer has more orders than allowed, and that Redis has the orders of buyers that the
// rows and dead letters have.
func (c *comparison) checkHolders() {
	for p, ids := range c.held {
		if o := c.h.Sales[p.Sale]; o == nil || len(ids) > o.PerBuyer {
			note(&c.Twice, "%s holds the orders %v of %s", p.Buyer, ids, p.Sale)
		}
	}
	for p, ids := range c.b.Holders {
		for _, id := range ids {
			if !slices.Contains(c.held[p], id) {
				note(&c.Contrary, "in Redis %s holds order %s of %s, which is neither a row nor a dead letter",
					p.Buyer, id, p.Sale)
			}
		}
	}
}

// checkUnits verifies that the units of each sale add up to its stock.
func (c *comparison) checkUnits() {
	for id, o := range c.h.Sales {
		s, ok := c.b.Sales[id]
		if sold := c.live[id]; !ok || s.Spread != max(o.Spread, 1) || s.Stock != o.Stock || s.Sold != sold || s.Left < 0 ||
			s.Stock != s.Left+sold+c.dead[id] {
			note(&c.Units, "%s: stock by the admin %d; in SQL stock %d, sold %d; in Redis left %d; %d rows, %d dead letters",
				id, o.Stock, s.Stock, s.Sold, s.Left, sold, c.dead[id])
		}
		if !c.b.Audits[id] {
			c.Contrary = append(c.Contrary, id+": the program's audit does not balance")
		}
	}
}

// note adds a violation to a list.
func note(list *[]string, format string, args ...any) {
	*list = append(*list, fmt.Sprintf(format, args...))
}
