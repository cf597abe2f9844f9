package httpserver

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/sale"
)

// Query is an Object of the query parameters of a list, all of which are strings. Of a repeated parameter the first
// value counts. An absent parameter is the zero value.
type Query struct{ Object }

// NewQuery returns the query of a request.
func NewQuery(c *fiber.Ctx) *Query {
	parameters := map[string]any{}
	for name, value := range c.Context().QueryArgs().All() {
		if _, repeated := parameters[string(name)]; !repeated {
			parameters[string(name)] = string(value)
		}
	}
	return &Query{Object{fields: parameters, bad: new(sale.InvalidError)}}
}

// End is called after the last parameter was taken. It rejects all parameters that were not taken, and returns Err.
func (q *Query) End() error {
	q.rejectUnknown("parameter")
	return q.Err()
}

// Sale takes the parameter "sale", the id of a sale.
func (q *Query) Sale() string { return q.Object.Sale("sale") }

// OneOf takes a parameter that must be one of the words.
func (q *Query) OneOf(name string, words ...string) string {
	present := q.Has(name)
	word := q.Text(name)
	if present && !slices.Contains(words, word) {
		q.Reject(name, "must be one of "+strings.Join(words, ", "))
	}
	return word
}

// Order takes the id of an order.
func (q *Query) Order(name string) sale.OrderID {
	if !q.Has(name) {
		return 0
	}
	id, err := sale.ParseOrderID(q.Text(name))
	if err != nil {
		q.Reject(name, err.Error())
	}
	return id
}

// Number takes a whole number of at least 0.
func (q *Query) Number(name string) int64 {
	if !q.Has(name) {
		return 0
	}
	n, err := strconv.ParseInt(q.Text(name), 10, 64)
	if err != nil || n < 0 {
		q.Reject(name, "must be a whole number of at least 0")
	}
	return n
}

const (
	defaultPageSize = 100
	maxPageSize     = 1000
)

// Limit takes the parameter "limit", the size of a page from 1 to 1000. The default is 100.
func (q *Query) Limit() int {
	if !q.Has("limit") {
		return defaultPageSize
	}
	n, err := strconv.Atoi(q.Text("limit"))
	if err != nil || n < 1 || n > maxPageSize {
		q.Reject("limit", "must be between 1 and "+strconv.Itoa(maxPageSize))
	}
	return n
}
