// Package keyspace names every Redis key, its type and its hash tag, and encodes queue messages, slots and the index of
// dead letters. It does not access Redis.
//
// All keys of a shard share one hash tag, so that a script touches one Redis Cluster slot only. A sale is in one shard,
// or in several if it has segments.
package keyspace

import (
	"crypto/sha256"
	"encoding/base64"
	"hash/fnv"
	"strconv"
	"strings"
)

// Space is a set of shards. The zero value has one shard, as one Redis node needs. Its methods are pure.
type Space struct {
	// Shards is the number of shards, 0 means 1. It must be equal in every process and must not change while Redis holds
	// orders.
	Shards int
}

// ShardOf returns the shard of a sale.
func (s Space) ShardOf(saleID string) Shard {
	if s.Shards <= 1 {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(saleID))
	return Shard(h.Sum32() % uint32(s.Shards))
}

// All returns every shard.
func (s Space) All() []Shard {
	shards := make([]Shard, max(s.Shards, 1))
	for i := range shards {
		shards[i] = Shard(i)
	}
	return shards
}

// Events (stream) holds order events for the consumer groups, one stream for all shards. The id of an entry is the
// position of the event in SQL, "<position>-0".
func (Space) Events() string { return "sluice:{events}:stream" }

// EventWake (list) holds at most one token. An idle relay of events blocks on it.
func (Space) EventWake() string { return "sluice:{events}:wake" }

// EventRelay (string) is the lock of the process that relays events.
func (Space) EventRelay() string { return "sluice:{events}:relay" }

// EventPages (string) exists while a backend reads the stream for open pages; it expires.
func (Space) EventPages() string { return "sluice:{events}:pages" }

// EndedSession (string, SET PX) exists while an admin session that ended early has not expired. Its value is empty.
func (Space) EndedSession(id string) string { return "sluice:{admin}:ended:" + id }

// Shard is one shard of the keyspace.
type Shard int

// ShardOfKey returns the shard of a key. Keys of Space have none.
func ShardOfKey(key string) (shard Shard, ok bool) {
	tag, _, closed := strings.Cut(strings.TrimPrefix(key, "sluice:{"), "}")
	n, err := strconv.Atoi(tag)
	return Shard(n), closed && err == nil
}

func (s Shard) key(rest string) string { return "sluice:{" + strconv.Itoa(int(s)) + "}:" + rest }

// Ready (list) holds the messages that wait for a worker, newest left.
func (s Shard) Ready() string { return s.key("ready") }

// Orders (stream) holds messages if new orders are queued in a stream: those that wait for a worker, and those that are
// leased. An entry has one field, m.
func (s Shard) Orders() string { return s.key("orders") }

// OrdersGroup is the only consumer group of Orders. Its consumers are batches.
const OrdersGroup = "orders"

// Batch (list) holds the messages of one lease, except those in Orders, newest left. The key of every batch begins with
// Batch("").
func (s Shard) Batch(id string) string { return s.key("batch:" + id) }

// Leases (sorted set) holds batch ids by deadline, in milliseconds of Redis TIME.
func (s Shard) Leases() string { return s.key("leases") }

// Consumers (hash) maps the number of a registered consumer to the id of the last batch that it leased; last is the
// last number.
func (s Shard) Consumers() string { return s.key("consumers") }

// Delayed (sorted set) holds messages that wait for a retry, by due time in milliseconds of Redis TIME.
func (s Shard) Delayed() string { return s.key("delayed") }

// Attempts (hash) maps an order id to its failures, one line each: milliseconds, tab, reason.
func (s Shard) Attempts() string { return s.key("attempts") }

// Crashes (hash) maps an order id to the number of its leases that expired.
func (s Shard) Crashes() string { return s.key("crashes") }

// Dead names the keys of the dead letters of the shard.
func (s Shard) Dead() Dead { return Dead(s) }

// Wake (list) holds at most one token. Idle workers block on it.
func (s Shard) Wake() string { return s.key("wake") }

// OrderNumbers (string) holds the last order number of the shard that was leased.
func (s Shard) OrderNumbers() string { return s.key("order_numbers") }

// Guard (hash) identifies the server with the verified data: its run_id, the generation of the data, the fence of the
// last rebuild that began, and rebuilding during a rebuild. A Redis that restarts with other data has another run_id,
// or an empty hash.
func (s Shard) Guard() string { return s.key("guard") }

// RebuildLock (string) is the lock of the process that rebuilds this shard.
func (s Shard) RebuildLock() string { return s.key("rebuild:lock") }

// RebuildReady (list) is the queue that a rebuild assembles before it replaces Ready.
func (s Shard) RebuildReady() string { return s.key("rebuild:ready") }

// AuditLock (string) is the lock of the process that audits the sales of this shard.
func (s Shard) AuditLock() string { return s.key("audit:lock") }

// Replicated (string) is written only to be replicated: a replica that has it has every earlier write.
func (s Shard) Replicated() string { return s.key("replicated") }

// Copy is a copy of a part of the shard at one instant. It expires.
func (s Shard) Copy(snapshot, part string) string { return s.key("copy:" + snapshot + ":" + part) }

// SaleNotifications (channel) carries changes of sales. No correctness depends on it. Scripts derive its name from the
// key of a sale.
func (s Shard) SaleNotifications() string { return s.key("sale_notifications") }

// Sales (set) holds the ids of the sales loaded in this shard.
func (s Shard) Sales() string { return s.key("sales") }

// Sale (hash) holds the definition of a sale, the number of orders accepted, and the number of the last return.
func (s Shard) Sale(id string) string { return s.key("sale:" + id) }

// Stock (string) is the number of units left.
func (s Shard) Stock(id string) string { return s.key("sale:" + id + ":stock") }

// Buyers (hash) maps a buyer to its Slots. A buyer without orders keeps an empty text.
func (s Shard) Buyers(id string) string { return s.key("sale:" + id + ":buyers") }

// Returns (hash) maps the id of a returned order to the number of its return, until its row
// in SQL has the number.
func (s Shard) Returns(id string) string { return s.key("sale:" + id + ":returns") }

// Trace (string, SET PX) holds the traceparent under which an order was accepted, if its trace is sampled. It expires,
// and no correctness depends on it.
func (s Shard) Trace(order string) string { return s.key("trace:" + order) }

// Dedup (string, SET NX PX) maps one request of a buyer to its fingerprint and its order. The key holds 128 bits of the
// SHA-256 of buyer and request key, which clients choose: its length is bounded, and no two pairs share it.
func (s Shard) Dedup(buyer, requestKey string) string {
	h := sha256.New()
	h.Write([]byte(buyer))
	h.Write([]byte{0}) // a buyer does not contain NUL
	h.Write([]byte(requestKey))
	var sum [sha256.Size]byte
	return s.key("dedup:" + base64.RawURLEncoding.EncodeToString(h.Sum(sum[:0])[:16]))
}

// Dead names the keys of the dead letters of one shard.
type Dead Shard

// Times (sorted set) holds the keys of dead letters by the time they were added, in milliseconds of Redis TIME. It is
// never trimmed.
func (d Dead) Times() string { return Shard(d).key("dead") }

// Letters (hash) maps the id of a dead order to its message and the reason.
func (d Dead) Letters() string { return Shard(d).key("dead:letters") }

// Index (sorted set) holds one line per dead letter (EncodeDeadLine), sorted by sale. All scores are 0.
func (d Dead) Index() string { return Shard(d).key("dead:index") }
