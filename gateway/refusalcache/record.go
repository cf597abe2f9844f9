package refusalcache

import (
	"sync/atomic"
	"time"
)

// Response is a refusal without the parts that belong to a single request.
type Response struct {
	Status     int
	Headers    []Header
	Body       []byte
	RetryAfter int64 // in seconds; 0 for none
}

// Header is one header of a Response.
type Header struct{ Name, Value []byte }

// Record is a cached refusal. It is immutable, except for its bypass list and the claim to revalidate it.
type Record struct {
	SaleHint
	Response

	sent   int64                      // when the request was sent to the backend, in ms
	stored int64                      // when the response had arrived, in ms
	until  int64                      // when the record expires, in ms
	stale  int64                      // from when one request may revalidate it, in ms
	bypass atomic.Pointer[bypassList] // replaced if it has expired before the record

	// revalidator identifies the buyer of the revalidating request: claimed and the hash of the name, or 0. That
	// buyer may obtain an order even if the revalidation fails, and therefore misses until the record expires.
	revalidator atomic.Uint64
}

const claimed = 1 << 32

// staleFraction of a record's time to live is the last part, in which it is revalidated: a fifth.
const staleFraction = 5

func newRecord(sent int64, hint SaleHint, resp Response) *Record {
	ttl := hint.TTL.Milliseconds()
	return &Record{SaleHint: hint, Response: resp, sent: sent, until: sent + ttl, stale: sent + ttl - ttl/staleFraction}
}

// Release lets another request revalidate the record. Call it if the previous one cannot have obtained an order.
func (r *Record) Release() { r.revalidator.Store(0) }

// RetryAfterAt returns the Retry-After of the response in seconds at the given wall clock time, or 0 for none. Before
// a sale opens it decreases with time, but by at most one second: no record lives longer, and a wrong clock of the edge
// has no larger effect.
func (r *Record) RetryAfterAt(now time.Time) int64 {
	if r.State != Scheduled || r.RetryAfter < 1 {
		return r.RetryAfter
	}
	left := (r.Opens - now.UnixMilli() + 999) / 1000
	return max(1, r.RetryAfter-1, min(left, r.RetryAfter))
}

// outranks reports whether r, which is cached, need not be replaced by next. If their requests overlapped in time,
// the sale's counters decide which response is newer. Otherwise the clock does, even if a counter has decreased.
func (r *Record) outranks(next *Record) bool {
	overlap := next.sent <= r.stored
	if overlap && (next.Version < r.Version || next.Holders < r.Holders) {
		return true
	}
	const margin = int64(maxTTL/time.Millisecond) / staleFraction / 4 // a smaller gain is not worth a new record
	same := next.Version == r.Version && next.Holders == r.Holders
	return same && (next.sent <= r.sent ||
		next.State == r.State && next.Opens == r.Opens && next.until-r.until < margin)
}
