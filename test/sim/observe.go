package sim

import (
	"encoding/json"
	"errors"
	"strings"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// spot is the position of an order in the queue.
type spot struct {
	place, saleID string
	unit          bool // it holds one: all but dead letters of orders for which a rebuild had none
}

func (w *world) list(key string) []string {
	all, err := w.mini.List(key)
	if err != nil {
		return nil // the key does not exist
	}
	return all
}

func (w *world) zset(key string) map[string]float64 {
	all, err := w.mini.SortedSet(key)
	if err != nil {
		return nil // the key does not exist
	}
	return all
}

func (w *world) hash(key string) map[string]string {
	fields, err := w.mini.HKeys(key)
	if err != nil {
		return nil // the key does not exist
	}
	all := make(map[string]string, len(fields))
	for _, f := range fields {
		all[f] = w.mini.HGet(key, f)
	}
	return all
}

// queued adds the position of each order of a shard's queue to at. An order in two positions is a violation.
func (w *world) queued(shard keyspace.Shard, at map[sale.OrderID]spot) {
	put := func(place, text string) {
		m, err := keyspace.DecodeMessage(text)
		if err != nil {
			w.violate("%s holds %q, which is not a message", place, text)
			return
		}
		if other := at[m.ID].place; other != "" {
			w.violate("order %s is in %s and in %s", short(m.ID), other, place)
		}
		at[m.ID] = spot{place, m.SaleID, true}
	}
	for _, text := range w.list(shard.Ready()) {
		put("ready", text)
	}
	for text := range w.zset(shard.Delayed()) {
		put("delayed", text)
	}
	w.leased(shard, put)
	w.dead(shard, at)
}

// leased calls put with the position and the text of each message that is leased or in the stream. A lease without
// messages and messages without a lease are violations.
func (w *world) leased(shard keyspace.Shard, put func(place, text string)) {
	leases := w.zset(shard.Leases())
	taken := map[string]bool{}
	for _, e := range w.entries(shard) {
		if e.batch == "" {
			put("ready", e.text)
			continue
		}
		taken[e.batch] = true
		put("batch "+e.batch, e.text)
		if _, leased := leases[e.batch]; !leased {
			w.violate("entry %s is pending for %s, which is not a lease", e.id, e.batch)
		}
	}
	batches := 0
	for id := range leases {
		texts := w.list(shard.Batch(id))
		if len(texts) > 0 {
			batches++
		} else if !taken[id] {
			w.violate("lease %s has no messages", id)
		}
		for _, text := range texts {
			put("batch "+id, text)
		}
	}
	for _, key := range w.mini.Keys() {
		if strings.HasPrefix(key, shard.Batch("")) {
			batches--
		}
	}
	if batches != 0 {
		w.violate("there are batches without a lease")
	}
}

// dead adds the dead letters to at. A letter that its lists lack is a violation.
func (w *world) dead(shard keyspace.Shard, at map[sale.OrderID]spot) {
	letters, listed := w.hash(shard.Dead().Letters()), map[string]bool{}
	for line := range w.zset(shard.Dead().Index()) {
		listed[line] = true
	}
	for id, letter := range letters {
		l := struct{ Unit, Message string }{}
		err := json.Unmarshal([]byte(letter), &l)
		m, merr := keyspace.DecodeMessage(l.Message)
		if err = errors.Join(err, merr); err != nil || m.ID.String() != id {
			w.violate("dead letter %q: %s", id, letter)
			continue
		}
		if other := at[m.ID].place; other != "" {
			w.violate("order %s is in %s and dead", short(m.ID), other)
		}
		at[m.ID] = spot{"dead", m.SaleID, l.Unit != "none"}
		if line := keyspace.EncodeDeadLine(id, m, l.Unit != "none"); !listed[line] {
			w.violate("dead letter %s is not in the list by sale", short(m.ID))
		}
	}
	if len(listed) != len(letters) {
		w.violate("the list by sale has %d dead letters, of %d", len(listed), len(letters))
	}
	if len(w.zset(shard.Dead().Times())) != len(letters) {
		w.violate("the list of dead letters and their texts differ")
	}
}
