package chaos

import (
	"fmt"
	"slices"
)

// Verdict is the result of comparing the books with the history.
type Verdict struct {
	Lost       []string // a confirmed order that is neither a row nor a dead letter, or belongs to another buyer
	Uncalled   []string // a row or dead letter without a purchase or without a record
	Twice      []string // a buyer with more than a sale allows
	Units      []string // units that do not add up
	Unfinished []string // orders in the queue, and units that have not returned yet
	Contrary   []string // all others: answers, audits and books that contradict each other
}

// Violations returns all violations.
func (v Verdict) Violations() []string {
	return slices.Concat(v.Lost, v.Uncalled, v.Twice, v.Units, v.Unfinished, v.Contrary)
}

// Check compares the stores with the answers that buyers and the admin received. It makes no calls.
func Check(h *History, b *Books) Verdict {
	var v Verdict
	h.mu.Lock()
	defer h.mu.Unlock()
	v.Contrary = append(v.Contrary, h.Wrong...)

	rows, letters := map[string]Row{}, map[string]Letter{}
	live, dead := map[string]int64{}, map[string]int64{} // units by sale
	held := map[Place][]string{}
	for _, r := range b.Rows {
		if _, again := rows[r.ID]; again {
			v.Twice = append(v.Twice, "order "+r.ID+" is two rows")
		}
		rows[r.ID] = r
		switch {
		case !r.Cancelled:
			live[r.Place.Sale]++
			held[r.Place] = append(held[r.Place], r.ID)
		case !h.Cancel[r.ID]:
			v.Contrary = append(v.Contrary, "order "+r.ID+" is cancelled without a request")
		}
		if r.Returning {
			v.Unfinished = append(v.Unfinished, "the unit of order "+r.ID+" has not returned")
		}
	}
	for _, l := range b.Letters {
		letters[l.ID] = l
		if r, both := rows[l.ID]; both && !r.Cancelled {
			continue // counted as a row
		}
		held[l.Place] = append(held[l.Place], l.ID)
		if l.Unbacked {
			v.Units = append(v.Units, "order "+l.ID+" of "+l.Place.Buyer+" was accepted and has no unit")
			continue
		}
		dead[l.Place.Sale]++
	}

	for id, p := range h.Confirmed {
		r, isRow := rows[id]
		l, isDead := letters[id]
		switch {
		case !isRow && !isDead:
			note(&v.Lost, "%s of %s was confirmed to %s and is lost", id, p.Sale, p.Buyer)
		case isRow && r.Place != p || isDead && l.Place != p:
			note(&v.Lost, "%s of %s was confirmed to %s and belongs to another buyer", id, p.Sale, p.Buyer)
		}
	}
	called := func(what, id string, p Place, cancelled bool) {
		_, told := h.Confirmed[id]
		_, written := b.Journal[id]
		// a cancelled order is no longer in a slot
		recorded := told || written || slices.Contains(b.Holders[p], id) || cancelled && h.Cancel[id]
		if h.Asked[p] == 0 || !recorded {
			note(&v.Uncalled, "%s %s of %s in %s: purchased %d times, recorded: %t",
				what, id, p.Buyer, p.Sale, h.Asked[p], recorded)
		}
	}
	for id, r := range rows {
		called("row", id, r.Place, r.Cancelled)
	}
	for id, l := range letters {
		called("dead letter", id, l.Place, false)
	}
	for p, ids := range held {
		if o := h.Sales[p.Sale]; o == nil || len(ids) > o.PerBuyer {
			note(&v.Twice, "%s holds the orders %v of %s", p.Buyer, ids, p.Sale)
		}
	}
	for p, ids := range b.Holders {
		for _, id := range ids {
			if !slices.Contains(held[p], id) {
				note(&v.Contrary, "in Redis %s holds order %s of %s, which is neither a row nor a dead letter",
					p.Buyer, id, p.Sale)
			}
		}
	}

	for id, o := range h.Sales {
		s, ok := b.Sales[id]
		if sold := live[id]; !ok || s.Spread != max(o.Spread, 1) || s.Stock != o.Stock || s.Sold != sold || s.Left < 0 ||
			s.Stock != s.Left+sold+dead[id] {
			note(&v.Units, "%s: stock by the admin %d; in SQL stock %d, sold %d; in Redis left %d; %d rows, %d dead letters",
				id, o.Stock, s.Stock, s.Sold, s.Left, sold, dead[id])
		}
		if !b.Audits[id] {
			v.Contrary = append(v.Contrary, id+": the program's audit does not balance")
		}
	}
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

// note adds a violation to a list.
func note(list *[]string, format string, args ...any) {
	*list = append(*list, fmt.Sprintf(format, args...))
}
