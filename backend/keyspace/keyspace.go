// Package keyspace names every key that sluice keeps in Redis: its type, what it holds, and its hash tag. It knows
// nothing of how the keys are used, and it never talks to Redis.
//
// All keys of a lane share one hash tag, so that a script touches one Redis Cluster slot only. A sale lives in one lane.
package keyspace

import (
	"crypto/sha256"
	"encoding/base64"
	"hash/fnv"
	"strconv"
)

// Space is a set of lanes. The zero value has one lane, which is what one Redis node wants. Its methods are pure.
type Space struct {
	Lanes int // 0 means 1; must be the same in every process and must not change while Redis holds orders
}

// LaneOf is the lane in which a sale lives.
func (s Space) LaneOf(saleID string) Lane {
	if s.Lanes <= 1 {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(saleID))
	return Lane(h.Sum32() % uint32(s.Lanes))
}

// All lists every lane.
func (s Space) All() []Lane {
	lanes := make([]Lane, max(s.Lanes, 1))
	for i := range lanes {
		lanes[i] = Lane(i)
	}
	return lanes
}

// Sequence (string) counts the order sequence numbers that were leased out in blocks; one for all lanes.
func (Space) Sequence() string { return "sluice:{seq}:order" }

// Events (stream) holds the changes of orders for the groups that read them, one for all lanes; its ids are the changes' positions in SQL, "<position>-0".
func (Space) Events() string { return "sluice:{events}:stream" }

// EventWake (list) holds at most one token, on which an idle relay of events blocks.
func (Space) EventWake() string { return "sluice:{events}:wake" }

// EventRelay (string) is held by the process whose turn it is to relay events.
func (Space) EventRelay() string { return "sluice:{events}:relay" }

// EndedSession (string, SET PX) is there while an operator's session is over before its time; it holds nothing.
func (Space) EndedSession(id string) string { return "sluice:{desk}:ended:" + id }

// Lane is one shard of the keyspace.
type Lane int

func (l Lane) key(rest string) string { return "sluice:{" + strconv.Itoa(int(l)) + "}:" + rest }

// Ready (list) holds the messages nobody has taken, newest left.
func (l Lane) Ready() string { return l.key("ready") }

// Orders (stream) holds messages too, where new orders go through a stream: those nobody has taken, and those that are leased. An entry has one field, m.
func (l Lane) Orders() string { return l.key("orders") }

// OrdersGroup is the one consumer group of Orders. Its consumers are batches.
const OrdersGroup = "orders"

// Batch (list) holds the messages of one lease, but for those that are entries of Orders.
func (l Lane) Batch(id string) string { return l.key("batch:" + id) }

// BatchPrefix is what the key of every batch begins with.
func (l Lane) BatchPrefix() string { return l.key("batch:") }

// Leases (sorted set) holds batch ids by deadline, in milliseconds of Redis TIME.
func (l Lane) Leases() string { return l.key("leases") }

// Delayed (sorted set) holds messages that wait for a retry, by due time in milliseconds of Redis TIME.
func (l Lane) Delayed() string { return l.key("delayed") }

// Attempts (hash) maps an order id to its failures, one line each: milliseconds, tab, reason.
func (l Lane) Attempts() string { return l.key("attempts") }

// Crashes (hash) maps an order id to how often its lease timed out.
func (l Lane) Crashes() string { return l.key("crashes") }

// Dead (sorted set) holds the ids of dead orders by time of death, in milliseconds of Redis TIME. Never trimmed.
func (l Lane) Dead() string { return l.key("dead") }

// DeadLetters (hash) maps the id of a dead order to its message and why it died.
func (l Lane) DeadLetters() string { return l.key("dead:letters") }

// DeadSales (sorted set) lists the dead letters by sale, a line for each: see lua/redis/include/letters.lua. All scores are 0.
func (l Lane) DeadSales() string { return l.key("dead:sales") }

// Wake (list) holds at most one token, on which idle workers block.
func (l Lane) Wake() string { return l.key("wake") }

// Epoch (hash) says which Redis this is: run_id of the server whose data was verified, the generation it was verified as, the fence of the last rebuild
// that began, and rebuilding while one is under way. A Redis that comes back with other data has another run_id, or none here.
func (l Lane) Epoch() string { return l.key("epoch") }

// RebuildLock (string) is held by the process that rebuilds this lane.
func (l Lane) RebuildLock() string { return l.key("rebuild:lock") }

// RebuildReady (list) is the queue as a rebuild puts it together, before it takes the place of Ready.
func (l Lane) RebuildReady() string { return l.key("rebuild:ready") }

// AuditLock (string) is held by the process whose turn it is to audit the sales of this lane.
func (l Lane) AuditLock() string { return l.key("audit:lock") }

// Replicated (string) is written for no other reason than to be replicated: whoever has it, has what came before it.
func (l Lane) Replicated() string { return l.key("replicated") }

// Copy is where a part of the lane is copied to, to be read in peace. It expires.
func (l Lane) Copy(snapshot, part string) string { return l.key("copy:" + snapshot + ":" + part) }

// Signals (channel) tells whoever listens that something about a sale has changed. Nothing relies on it; scripts derive its name from that of a key of the lane.
func (l Lane) Signals() string { return l.key("signals") }

// Sales (set) holds the ids of the sales loaded in this lane.
func (l Lane) Sales() string { return l.key("sales") }

// Sale (hash) holds a sale's definition, its count of acceptances, and the number of the last unit taken back.
func (l Lane) Sale(id string) string { return l.key("sale:" + id) }

// Stock (string) is the number of units left.
func (l Lane) Stock(id string) string { return l.key("sale:" + id + ":stock") }

// Buyers (hash) maps a buyer to the order ids held, comma-separated by place; a place given back is empty. A buyer stays in it who holds nothing any more.
func (l Lane) Buyers(id string) string { return l.key("sale:" + id + ":buyers") }

// Returns (hash) maps the id of a cancelled order whose unit was taken back to the number of that return, until its row has it too.
func (l Lane) Returns(id string) string { return l.key("sale:" + id + ":returns") }

// Trace (string, SET PX) holds the traceparent under which an order was accepted, if its trace is sampled. It expires, and nothing relies on it.
func (l Lane) Trace(order string) string { return l.key("trace:" + order) }

// Dedup (string, SET NX PX) maps one request of a buyer to what it asked for and the order it got. Buyer and request key come
// from outside, so the Redis key holds 128 bits of their SHA-256: bounded, and no two pairs run together.
func (l Lane) Dedup(buyer, requestKey string) string {
	h := sha256.New()
	h.Write([]byte(buyer))
	h.Write([]byte{0}) // no buyer holds a NUL
	h.Write([]byte(requestKey))
	var sum [sha256.Size]byte
	return l.key("dedup:" + base64.RawURLEncoding.EncodeToString(h.Sum(sum[:0])[:16]))
}
