package httpserver

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"sluice/backend/sale"
	"sluice/internal/strictjson"
)

// Query reads the query parameters of a list and collects their errors. Returned strings are copies. An absent
// parameter is the zero value.
type Query struct {
	args  *fasthttp.Args
	known []string // the parameters that were read
	bad   sale.InvalidError
}

// NewQuery returns the query of a request.
func NewQuery(c *fiber.Ctx) *Query { return &Query{args: c.Context().QueryArgs()} }

// Empty reports whether the request has no query parameters.
func (q *Query) Empty() bool { return q.args.Len() == 0 }

// Reject records the error of a parameter. The text continues a sentence that begins with the parameter's name.
func (q *Query) Reject(name, detail string) { q.bad.Add(name, detail) }

// Err returns a *sale.InvalidError with all rejected parameters, or nil.
func (q *Query) Err() error { return q.bad.Err() }

// End is Err after the last parameter was read: it also rejects those that were not read.
func (q *Query) End() error {
	for name := range q.args.All() {
		if !slices.Contains(q.known, string(name)) {
			q.Reject(strings.Trim(strictjson.QuoteName(string(name)), `"`), "is not a known parameter")
		}
	}
	return q.bad.Err()
}

// has reports whether the request has a parameter, and adds it to the known ones.
func (q *Query) has(name string) bool {
	q.known = append(q.known, name)
	return q.args.Has(name)
}

// Text returns a parameter without a check.
func (q *Query) Text(name string) string {
	q.known = append(q.known, name)
	return string(q.args.Peek(name))
}

// Sale returns the parameter "sale", the id of a sale.
func (q *Query) Sale() string {
	id := q.Text("sale")
	if q.has("sale") {
		if err := sale.ValidateID(id); err != nil {
			q.Reject("sale", err.Error())
		}
	}
	return id
}

// OneOf returns a parameter whose value must be one of the words.
func (q *Query) OneOf(name string, words ...string) string {
	word := q.Text(name)
	if q.has(name) && !slices.Contains(words, word) {
		q.Reject(name, "must be one of "+strings.Join(words, ", "))
	}
	return word
}

// Order returns the id of an order.
func (q *Query) Order(name string) sale.OrderID {
	if !q.has(name) {
		return 0
	}
	id, err := sale.ParseOrderID(q.Text(name))
	if err != nil {
		q.Reject(name, err.Error())
	}
	return id
}

// Number returns a whole number of at least 0.
func (q *Query) Number(name string) int64 {
	if !q.has(name) {
		return 0
	}
	n, err := strconv.ParseInt(q.Text(name), 10, 64)
	if err != nil || n < 0 {
		q.Reject(name, "must be a whole number of at least 0")
	}
	return n
}

// Line returns a search text of at most 200 bytes without control characters.
func (q *Query) Line(name string) string {
	text := q.Text(name)
	if !isLine(text) {
		q.Reject(name, lineRule)
	}
	return text
}

// isLine reports whether a text is UTF-8 of at most maxLine bytes without control characters.
func isLine(text string) bool {
	return len(text) <= maxLine && IsStorable(text) && strings.IndexFunc(text, unicode.IsControl) < 0
}

// IsStorable reports whether SQL can store a text. PostgreSQL rejects other texts even in a WHERE clause.
func IsStorable(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// Time returns an RFC 3339 time.
func (q *Query) Time(name string) time.Time {
	if !q.has(name) {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, q.Text(name))
	if err != nil {
		q.Reject(name, "must be a time such as 2026-11-27T10:00:00Z")
	}
	return at
}

const (
	defaultPageSize = 100
	maxPageSize     = 1000
)

// Limit returns the parameter "limit", the size of a page from 1 to 1000. The default is 100.
func (q *Query) Limit() int {
	if !q.has("limit") {
		return defaultPageSize
	}
	n, err := strconv.Atoi(q.Text("limit"))
	if err != nil || n < 1 || n > maxPageSize {
		q.Reject("limit", "must be between 1 and "+strconv.Itoa(maxPageSize))
	}
	return n
}
