// Package keyspace names every key that sluice keeps in Redis: its type, what it holds, and its hash tag. It knows
// nothing of how the keys are used, and it never talks to Redis.
//
// All keys of a shard share one hash tag, so that a script touches one Redis Cluster slot only. A sale lives in one shard.
package keyspace

import (
	"crypto/sha256"
	"encoding/base64"
	"hash/fnv"
	"strconv"
)

// Space is a set of shards. The zero value has one shard, which is what one Redis node wants. Its methods are pure.
type Space struct {
	Shards int // 0 means 1; must be the same in every process and must not change while Redis holds orders
}

// ShardOf is the shard in which a sale lives.
func (s Space) ShardOf(saleID string) Shard {
	if s.Shards <= 1 {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(saleID))
	return Shard(h.Sum32() % uint32(s.Shards))
}

// All lists every shard.
func (s Space) All() []Shard {
	shards := make([]Shard, max(s.Shards, 1))
	for i := range shards {
		shards[i] = Shard(i)
	}
	return shards
}

// Sequence (string) counts the order sequence numbers that were leased out in blocks; one for all shards.
func (Space) Sequence() string { return "sluice:{seq}:order" }

// Events (stream) holds the changes of orders for the groups that read them, one for all shards; its ids are the changes' positions in SQL, "<position>-0".
func (Space) Events() string { return "sluice:{events}:stream" }

// EventWake (list) holds at most one token, on which an idle relay of events blocks.
func (Space) EventWake() string { return "sluice:{events}:wake" }

// EventRelay (string) is held by the process whose turn it is to relay events.
func (Space) EventRelay() string { return "sluice:{events}:relay" }

// EndedSession (string, SET PX) is there while an operator's session is over before its time; it holds nothing.
func (Space) EndedSession(id string) string { return "sluice:{admin}:ended:" + id }

// Shard is one shard of the keyspace.
type Shard int

func (l Shard) key(rest string) string { return "sluice:{" + strconv.Itoa(int(l)) + "}:" + rest }

// Ready (list) holds the messages nobody has taken, newest left.
func (l Shard) Ready() string { return l.key("ready") }

// Orders (stream) holds messages too, where new orders go through a stream: those nobody has taken, and those that are leased. An entry has one field, m.
func (l Shard) Orders() string { return l.key("orders") }

// OrdersGroup is the one consumer group of Orders. Its consumers are batches.
const OrdersGroup = "orders"

// Batch (list) holds the messages of one lease, but for those that are entries of Orders.
func (l Shard) Batch(id string) string { return l.key("batch:" + id) }

// BatchPrefix is what the key of every batch begins with.
func (l Shard) BatchPrefix() string { return l.key("batch:") }

// Leases (sorted set) holds batch ids by deadline, in milliseconds of Redis TIME.
func (l Shard) Leases() string { return l.key("leases") }

// Delayed (sorted set) holds messages that wait for a retry, by due time in milliseconds of Redis TIME.
func (l Shard) Delayed() string { return l.key("delayed") }

// Attempts (hash) maps an order id to its failures, one line each: milliseconds, tab, reason.
func (l Shard) Attempts() string { return l.key("attempts") }

// Crashes (hash) maps an order id to how often its lease timed out.
func (l Shard) Crashes() string { return l.key("crashes") }

// Dead (sorted set) holds the ids of dead orders by time of death, in milliseconds of Redis TIME. Never trimmed.
func (l Shard) Dead() string { return l.key("dead") }

// DeadLetters (hash) maps the id of a dead order to its message and why it died.
func (l Shard) DeadLetters() string { return l.key("dead:letters") }

// DeadSales (sorted set) lists the dead letters by sale, a line for each: see lua/redis/include/dead_letters.lua. All scores are 0.
func (l Shard) DeadIndex() string { return l.key("dead:index") }

// Wake (list) holds at most one token, on which idle workers block.
func (l Shard) Wake() string { return l.key("wake") }

// Epoch (hash) says which Redis this is: run_id of the server whose data was verified, the generation it was verified as, the fence of the last rebuild
// that began, and rebuilding while one is under way. A Redis that comes back with other data has another run_id, or none here.
func (l Shard) Guard() string { return l.key("guard") }

// RebuildLock (string) is held by the process that rebuilds this shard.
func (l Shard) RebuildLock() string { return l.key("rebuild:lock") }

// RebuildReady (list) is the queue as a rebuild puts it together, before it takes the place of Ready.
func (l Shard) RebuildReady() string { return l.key("rebuild:ready") }

// AuditLock (string) is held by the process whose turn it is to audit the sales of this shard.
func (l Shard) AuditLock() string { return l.key("audit:lock") }

// Replicated (string) is written for no other reason than to be replicated: whoever has it, has what came before it.
func (l Shard) Replicated() string { return l.key("replicated") }

// Copy is where a part of the shard is copied to, to be read in peace. It expires.
func (l Shard) Copy(snapshot, part string) string { return l.key("copy:" + snapshot + ":" + part) }

// Signals (channel) tells whoever listens that something about a sale has changed. Nothing relies on it; scripts derive its name from that of a key of the shard.
func (l Shard) SaleNotifications() string { return l.key("sale_notifications") }

// Sales (set) holds the ids of the sales loaded in this shard.
func (l Shard) Sales() string { return l.key("sales") }

// Sale (hash) holds a sale's definition, its count of acceptances, and the number of the last unit taken back.
func (l Shard) Sale(id string) string { return l.key("sale:" + id) }

// Stock (string) is the number of units left.
func (l Shard) Stock(id string) string { return l.key("sale:" + id + ":stock") }

// Buyers (hash) maps a buyer to the order ids held, comma-separated by place; a place given back is empty. A buyer stays in it who holds nothing any more.
func (l Shard) Buyers(id string) string { return l.key("sale:" + id + ":buyers") }

// Returns (hash) maps the id of a cancelled order whose unit was taken back to the number of that return, until its row has it too.
func (l Shard) Returns(id string) string { return l.key("sale:" + id + ":returns") }

// Trace (string, SET PX) holds the traceparent under which an order was accepted, if its trace is sampled. It expires, and nothing relies on it.
func (l Shard) Trace(order string) string { return l.key("trace:" + order) }

// Dedup (string, SET NX PX) maps one request of a buyer to what it asked for and the order it got. Buyer and request key come
// from outside, so the Redis key holds 128 bits of their SHA-256: bounded, and no two pairs run together.
func (l Shard) Dedup(buyer, requestKey string) string {
	h := sha256.New()
	h.Write([]byte(buyer))
	h.Write([]byte{0}) // no buyer holds a NUL
	h.Write([]byte(requestKey))
	var sum [sha256.Size]byte
	return l.key("dedup:" + base64.RawURLEncoding.EncodeToString(h.Sum(sum[:0])[:16]))
}
