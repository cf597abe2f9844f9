package api

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
)

// query takes the parameters of a list out of a URL and notes all mistakes. What it returns are copies.
type query struct {
	args *fasthttp.Args
	bad  sale.InvalidError
}

func newQuery(c *fiber.Ctx) *query { return &query{args: c.Context().QueryArgs()} }

func (q *query) text(name string) string { return string(q.args.Peek(name)) }

func (q *query) sale() string {
	id := q.text("sale")
	if q.args.Has("sale") {
		if err := sale.ValidateID(id); err != nil {
			q.bad.Add("sale", err.Error())
		}
	}
	return id
}

// oneOf is one of the words, or "" when there is no such parameter.
func (q *query) oneOf(name string, words ...string) string {
	word := q.text(name)
	if q.args.Has(name) && !slices.Contains(words, word) {
		q.bad.Add(name, "must be "+strings.Join(words, ", "))
	}
	return word
}

func (q *query) order(name string) sale.OrderID {
	if !q.args.Has(name) {
		return 0
	}
	id, err := sale.ParseOrderID(q.text(name))
	if err != nil {
		q.bad.Add(name, err.Error())
	}
	return id
}

func (q *query) number(name string) int64 {
	if !q.args.Has(name) {
		return 0
	}
	n, err := strconv.ParseInt(q.text(name), 10, 64)
	if err != nil || n < 0 {
		q.bad.Add(name, "must be a number")
	}
	return n
}

// maxSearch is how long a text to be searched for may be, in bytes.
const maxSearch = 200

// search is a text to be searched for.
func (q *query) search(name string) string {
	text := q.text(name)
	if len(text) > maxSearch || !isLine(text) {
		q.bad.Add(name, "must be at most "+strconv.Itoa(maxSearch)+" bytes of text without control characters")
	}
	return text
}

// isLine tells whether a text is UTF-8 without control characters.
func isLine(text string) bool {
	return isStorable(text) && strings.IndexFunc(text, unicode.IsControl) < 0
}

// isStorable tells whether SQL can hold a text: PostgreSQL fails at any other, even where it is only looked for.
func isStorable(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

func (q *query) instant(name string) time.Time {
	if !q.args.Has(name) {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, q.text(name))
	if err != nil {
		q.bad.Add(name, "must be a time such as 2026-12-01T10:00:00Z")
	}
	return at
}

const (
	defaultPage = 100
	maxPage     = 1000
)

func (q *query) limit() int {
	if !q.args.Has("limit") {
		return defaultPage
	}
	n, err := strconv.Atoi(q.text("limit"))
	if err != nil || n < 1 || n > maxPage {
		q.bad.Add("limit", "must be between 1 and "+strconv.Itoa(maxPage))
	}
	return n
}

// err is the *sale.InvalidError with all mistakes, or nil.
func (q *query) err() error {
	if len(q.bad.Fields) == 0 {
		return nil
	}
	return &q.bad
}
