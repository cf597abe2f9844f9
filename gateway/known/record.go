package known

import (
	"sync/atomic"
	"time"
)

// Answer is a refusal as a client got it: what is the same for all, and nothing of one client's own.
type Answer struct {
	Status     int
	Headers    []Header
	Body       []byte
	RetryAfter int64 // seconds; 0 for none
}

// Header is one header of an Answer.
type Header struct{ Name, Value []byte }

// Record is one refusal of a whole sale that may be repeated until its time is over. Only its turn ever changes.
type Record struct {
	Told
	Answer

	sent    int64 // ms: when the backend was asked
	learned int64 // ms: when it had answered
	until   int64 // ms: repeated before, never at or after
	renewal int64 // ms: from then on one request may go to renew it
	list    *holders

	// turn is who goes, or went, to renew: taken and the sum of the name, or 0. Whoever went in vain may hold an order since, and passes until the end.
	turn atomic.Uint64
}

const taken = 1 << 32

// renewing is the last part of a record's time: a fifth.
const renewing = 5

func newRecord(sent int64, t Told, a Answer) *Record {
	ttl := t.TTL.Milliseconds()
	return &Record{Told: t, Answer: a, sent: sent, until: sent + ttl, renewal: sent + ttl - ttl/renewing}
}

// Release gives the turn back, for whoever took it and certainly got no order: the next one may go.
func (r *Record) Release() { r.turn.Store(0) }

// Wait is the answer's Retry-After by the wall clock now, in seconds; 0 for none. Until a sale opens it goes down with time: by what the backend said when,
// and by one at most, since no record lasts longer. A wall clock that is wrong cannot do more harm than that.
func (r *Record) Wait(now time.Time) int64 {
	if r.State != Scheduled || r.RetryAfter < 1 {
		return r.RetryAfter
	}
	left := (r.Opens - now.UnixMilli() + 999) / 1000
	return max(1, r.RetryAfter-1, min(left, r.RetryAfter))
}

// outdoes says whether r, which is known, is as good as a new record. Of two that were under way together the sale's own counters tell which was decided
// later; of two that were not, the clock does, even if a counter went back.
func (r *Record) outdoes(next *Record) bool {
	together := next.sent <= r.learned
	if together && (next.Version < r.Version || next.Holders < r.Holders) {
		return true
	}
	const little = int64(MostTTL/time.Millisecond) / renewing / 4 // not worth a record
	same := next.Version == r.Version && next.Holders == r.Holders
	return same && (next.sent <= r.sent || next.State == r.State && next.Opens == r.Opens && next.until-r.until < little)
}
