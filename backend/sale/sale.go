// Package sale defines the domain: sales, orders, the outcome of a purchase request, and the errors that all packages
// share. It imports the standard library only.
//
// A Sale is one product with a limited stock. Stock counts units in total, including those sold; PerBuyer limits the
// units that one buyer may hold at a time. What a buyer sees of a sale is its State, which follows from the switch that
// admins set, the times at which it opens and closes, and the units left.
//
// A purchase request has an Outcome. If it is accepted, it creates an Order, which is one unit for one buyer. The order
// takes one of the buyer's slots, numbered from 1 to PerBuyer, and the sale's next serial. Its status is queued, then
// created, then paid. A created order can be cancelled instead of paid, and a queued order can become dead instead of
// created:
//
//	queued     accepted in Redis, not yet a row in SQL
//	created    a row, to be paid before its hold ends
//	paid       a row that is paid
//	cancelled  a row that holds no unit; the unit can be sold again
//	dead       failed permanently in the queue; holds its unit until an admin retries or cancels it
//
// A unit is counted once, for exactly one order, or is left to be sold. An accepted order is never lost: it ends as a
// row or as a dead letter.
package sale

import (
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of a sale. Counts stay far below 2^53, up to which the numbers of Redis scripts (Lua) are exact.
const (
	MaxStock    = 1_000_000_000
	MaxPerBuyer = 100
	MaxSpread   = 1000
	MaxIDLen    = 64
	MaxTitleLen = 200
	MaxBuyerLen = 255
	// MaxAmount bounds a price. A JSON number and a browser's arithmetic are exact for fifteen digits.
	MaxAmount = 999_999_999_999_999
)

// Limits of a sale's Hold. A shorter hold leaves no time to pay; a longer one exceeds the duration of a sale.
const (
	MinHold = time.Second
	MaxHold = 30 * 24 * time.Hour
)

// Switch is the position to which admins have set a sale. A buyer sees the State instead.
type Switch string

// The positions of a switch. Closed is final.
const (
	On     Switch = "on"
	Paused Switch = "paused"
	Closed Switch = "closed"
)

// State is what a buyer sees of a sale at one instant. It follows from the switch, the times and the units left.
type State string

// The states of a sale.
const (
	StateScheduled State = "scheduled"
	StateOpen      State = "open"
	StatePaused    State = "paused"
	StateSoldOut   State = "sold_out"
	StateClosed    State = "closed"
)

// Price is an amount in the minor unit of its currency (cents), and the ISO 4217 code.
type Price struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// Sale is one product on sale. The zero value is not valid; see Validate.
type Sale struct {
	ID       string
	Title    string
	Price    Price
	Stock    int64     // units in total, including those sold; a restock increases it
	PerBuyer int       // units one buyer may hold at a time
	OpensAt  time.Time // millisecond precision
	ClosesAt time.Time // millisecond precision; zero: the sale does not end
	// Hold is how long an order that is a row may stay unpaid before it is cancelled; 0: no limit. It is a whole number of
	// milliseconds, never changes, and is not stored in Redis.
	Hold time.Duration
	// Spread is the number of segments of the sale, each in a shard of its own; it never changes. 0 and 1: the sale lives
	// in one shard. Stores return 0 for 1.
	Spread  int
	Switch  Switch
	Version int64 // number of the last change of the sale, from 1; Redis applies newer versions only
	Details
}

// StateAt returns the state at the time now with the given number of units left.
func (s Sale) StateAt(now time.Time, left int64) State {
	switch {
	case s.Switch == Closed, !s.ClosesAt.IsZero() && !now.Before(s.ClosesAt):
		return StateClosed
	case s.Switch == Paused:
		return StatePaused
	case now.Before(s.OpensAt):
		return StateScheduled
	case left <= 0:
		return StateSoldOut
	}
	return StateOpen
}

// Validate returns an *InvalidError that lists every invalid field, or nil.
func (s Sale) Validate() error {
	var bad InvalidError
	if err := ValidateID(s.ID); err != nil {
		bad.Add("id", err.Error())
	}
	switch {
	case strings.TrimSpace(s.Title) == "":
		bad.Add("title", "must not be empty")
	case len(s.Title) > MaxTitleLen:
		bad.Add("title", fmt.Sprintf("must not exceed %d bytes", MaxTitleLen))
	case !printable(s.Title):
		bad.Add("title", "must be UTF-8 text without control characters")
	case !Visible(s.Title):
		bad.Add("title", "must contain a visible character")
	}
	if s.Price.Amount < 0 || s.Price.Amount > MaxAmount {
		bad.Add("price.amount", fmt.Sprintf("must be between 0 and %d", MaxAmount))
	}
	if !IsCurrency(s.Price.Currency) {
		bad.Add("price.currency", "must be three capital letters (ISO 4217)")
	}
	if s.Stock < 1 || s.Stock > MaxStock {
		bad.Add("stock", fmt.Sprintf("must be between 1 and %d", MaxStock))
	}
	switch {
	case s.PerBuyer < 1 || s.PerBuyer > MaxPerBuyer:
		bad.Add("per_buyer", fmt.Sprintf("must be between 1 and %d", MaxPerBuyer))
	case s.Stock >= 1 && int64(s.PerBuyer) > s.Stock:
		bad.Add("per_buyer", "must not exceed stock")
	}
	if s.OpensAt.IsZero() {
		bad.Add("opens_at", "must be set")
	}
	if !s.ClosesAt.IsZero() && !s.ClosesAt.After(s.OpensAt) {
		bad.Add("closes_at", "must be after opens_at")
	}
	switch {
	case s.Hold != 0 && (s.Hold < MinHold || s.Hold > MaxHold):
		bad.Add("hold", "must be 0, or between 1s and 720h (30 days)")
	case s.Hold%time.Millisecond != 0:
		bad.Add("hold", "must be whole milliseconds")
	}
	if s.Spread < 0 || s.Spread > MaxSpread {
		bad.Add("spread", fmt.Sprintf("must be between 1 and %d", MaxSpread))
	}
	s.Details.addInvalid(&bad)
	return bad.Err()
}

// ValidateID returns an error unless id is a valid id of a sale: 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter
// or a digit. Such an id is safe in a URL, a Redis key and a queue message.
func ValidateID(id string) error {
	if id == "" || len(id) > MaxIDLen {
		return fmt.Errorf("must have 1 to %d characters", MaxIDLen)
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return errors.New("may contain letters, digits, '.', '_' and '-' only, and must begin with a letter or a digit")
		}
	}
	return nil
}

// NewID returns a random id for a sale: 50 bits as ten characters of a-z and 2-7.
func NewID() string {
	var b [7]byte
	_, _ = rand.Read(b[:]) // never returns an error
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))[:10]
}

// ValidateBuyer returns an error unless b is a valid id of a buyer: 1 to 255 bytes of UTF-8 without control characters.
func ValidateBuyer(b string) error {
	if b == "" || len(b) > MaxBuyerLen {
		return fmt.Errorf("buyer must have 1 to %d bytes", MaxBuyerLen)
	}
	if !printable(b) {
		return errors.New("buyer must be UTF-8 text without control characters")
	}
	return nil
}

// Visible reports whether a text contains a letter, a digit, punctuation or a symbol, as opposed to spaces, marks and
// zero-width characters only.
func Visible(s string) bool {
	visible := func(r rune) bool { return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) }
	return strings.IndexFunc(s, visible) >= 0
}

func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}

// IsCurrency reports whether a text has the form of a currency code of ISO 4217.
func IsCurrency(s string) bool {
	return len(s) == 3 && strings.IndexFunc(s, func(r rune) bool { return r < 'A' || r > 'Z' }) < 0
}
