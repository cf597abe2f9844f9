// Package sale holds the words of the business: a sale, an order, the outcome of a purchase, and the
// errors every other package speaks in. It uses the standard library only and imports nothing of sluice.
package sale

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of a sale. Redis scripts compute with Lua numbers (exact up to 2^53), so every count stays far below that.
const (
	MaxStock    = 1_000_000_000
	MaxPerBuyer = 100
	MaxIDLen    = 64
	MaxTitleLen = 200
	MaxBuyerLen = 255
	// MaxAmount bounds a price: fifteen digits are what a JSON number and a browser's arithmetic carry and show to the last one.
	MaxAmount = 999_999_999_999_999
)

// Limits of a sale's Hold. Below the shortest nobody can pay; above the longest a unit would be held for longer than any sale lasts.
const (
	MinHold = time.Second
	MaxHold = 30 * 24 * time.Hour
)

// Switch is what the operator has set a sale to. It is not what a buyer sees: that is State.
type Switch string

// The positions of the switch. Closed is final.
const (
	On     Switch = "on"
	Paused Switch = "paused"
	Closed Switch = "closed"
)

// State is what a buyer sees of a sale at one instant; it follows from the switch, the window and the units left.
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
	Stock    int64     // units in all, sold ones included; restocking raises it
	PerBuyer int       // units one buyer may hold at a time
	OpensAt  time.Time // millisecond precision
	ClosesAt time.Time // millisecond precision; zero: the sale has no end
	// Hold is how long an order that is a row may stay unpaid before it is cancelled and its unit sold again; 0: for ever. Whole milliseconds. It never
	// changes, and Redis does not know it.
	Hold    time.Duration
	Switch  Switch
	Version int64 // counts the changes of this sale, from 1; stores apply only what is newer
}

// StateAt tells what a buyer sees at the time now with left units left.
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

// Validate reports every field that is wrong at once, as an *InvalidError, or nil.
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
		bad.Add("title", "must have something to see")
	}
	if s.Price.Amount < 0 || s.Price.Amount > MaxAmount {
		bad.Add("price.amount", fmt.Sprintf("must be between 0 and %d", MaxAmount))
	}
	if !currencyCode(s.Price.Currency) {
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
	if len(bad.Fields) > 0 {
		return &bad
	}
	return nil
}

// ValidateID tells whether id may name a sale: 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or a digit.
// Such an id is safe in a URL, a Redis key and a queue message.
func ValidateID(id string) error {
	if id == "" || len(id) > MaxIDLen {
		return fmt.Errorf("must have 1 to %d characters", MaxIDLen)
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return errors.New("may hold letters, digits, '.', '_' and '-' only, and begins with a letter or a digit")
		}
	}
	return nil
}

// ValidateBuyer tells whether b may name a buyer: 1 to 255 bytes of UTF-8 with no control characters.
func ValidateBuyer(b string) error {
	if b == "" || len(b) > MaxBuyerLen {
		return fmt.Errorf("buyer must have 1 to %d bytes", MaxBuyerLen)
	}
	if !printable(b) {
		return errors.New("buyer must be UTF-8 text without control characters")
	}
	return nil
}

// Visible tells whether a text has a letter, a digit, a sign or a symbol: with spaces, marks and characters of no width alone there is nothing to read or to click on.
func Visible(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) }) >= 0
}

func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}

func currencyCode(s string) bool {
	if len(s) != 3 {
		return false
	}
	for i := 0; i < 3; i++ {
		if s[i] < 'A' || s[i] > 'Z' {
			return false
		}
	}
	return true
}
