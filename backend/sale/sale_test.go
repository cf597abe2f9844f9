package sale

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func valid() Sale {
	opens := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	return Sale{
		ID: "shoe", Title: "The shoe", Price: Price{9990, "EUR"}, Stock: 10, PerBuyer: 2,
		OpensAt: opens, ClosesAt: opens.Add(time.Hour), Switch: On, Version: 1,
	}
}

func TestValidateReportsInvalidField(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Fatal(err)
	}
	for field, invalidate := range map[string]func(*Sale){
		"id":             func(s *Sale) { s.ID = "a b" },
		"title":          func(s *Sale) { s.Title = " " },
		"price.amount":   func(s *Sale) { s.Price.Amount = -1 },
		"price.currency": func(s *Sale) { s.Price.Currency = "eur" },
		"stock":          func(s *Sale) { s.Stock = math.MaxInt64 },
		"per_buyer":      func(s *Sale) { s.PerBuyer = 11 },
		"opens_at":       func(s *Sale) { s.OpensAt = time.Time{} },
		"closes_at":      func(s *Sale) { s.ClosesAt = s.OpensAt },
		"hold":           func(s *Sale) { s.Hold = time.Second - time.Millisecond },
	} {
		s := valid()
		invalidate(&s)
		var bad *InvalidError
		if !errors.As(s.Validate(), &bad) || len(bad.Fields) != 1 || bad.Fields[0].Field != field {
			t.Errorf("invalid %s: %v", field, s.Validate())
		}
	}
	for hold, ok := range map[time.Duration]bool{
		0: true, MinHold: true, 15 * time.Minute: true, MaxHold: true, -time.Minute: false, time.Millisecond: false,
		MaxHold + 1: false, time.Minute + 1: false,
	} {
		s := valid()
		s.Hold = hold
		if err := s.Validate(); (err == nil) != ok {
			t.Errorf("a hold of %s: %v", hold, err)
		}
	}
	var all *InvalidError
	if !errors.As(Sale{}.Validate(), &all) || len(all.Fields) < 6 {
		t.Errorf("the zero sale: %v", Sale{}.Validate())
	}
	for title, ok := range map[string]bool{"鞋": true, "👟": true, "?": true, "\u200b\u200b": false, "\u202e": false,
		"\u0301": false, "\u00a0 \u3000": false} {
		s := valid()
		s.Title = title
		if err := s.Validate(); (err == nil) != ok {
			t.Errorf("title %q: %v", title, err)
		}
	}
	for amount, ok := range map[int64]bool{0: true, MaxAmount: true, MaxAmount + 1: false, math.MaxInt64: false,
		math.MinInt64: false} {
		s := valid()
		s.Price.Amount = amount
		if err := s.Validate(); (err == nil) != ok {
			t.Errorf("a price of %d: %v", amount, err)
		}
	}
	for _, stock := range []int64{0, -1, math.MinInt64, MaxStock + 1} {
		s := valid()
		s.Stock = stock
		if s.Validate() == nil {
			t.Errorf("stock %d is accepted", stock)
		}
	}
}

func TestValidateIDRejectsUnsafeCharacters(t *testing.T) {
	for _, id := range []string{"", "\x00", "a\x00", "{a}", "a}", "a b", "a/b", "..", ".a", "-a", "ä",
		strings.Repeat("a", 65), strings.Repeat("a", 10_000)} {
		if ValidateID(id) == nil {
			t.Errorf("id %.20q is accepted", id)
		}
	}
	for _, id := range []string{"a", "42", "A.b_c-d", strings.Repeat("a", 64)} {
		if err := ValidateID(id); err != nil {
			t.Errorf("id %q: %v", id, err)
		}
	}
}

func TestValidateBuyer(t *testing.T) {
	for _, b := range []string{"", "\x00", "a\nb", "\xff", strings.Repeat("a", 256)} {
		if ValidateBuyer(b) == nil {
			t.Errorf("buyer %.20q is accepted", b)
		}
	}
	for _, b := range []string{"a", "with space", "ünï 漢字 🙂", strings.Repeat("a", 255)} {
		if err := ValidateBuyer(b); err != nil {
			t.Errorf("buyer %q: %v", b, err)
		}
	}
}

func TestStateAt(t *testing.T) {
	s := valid()
	at := s.OpensAt
	for _, c := range []struct {
		turn Switch
		now  time.Time
		left int64
		want State
	}{
		{On, at.Add(-time.Millisecond), 5, StateScheduled},
		{On, at, 5, StateOpen},
		{On, at, 0, StateSoldOut},
		{Paused, at.Add(-time.Hour), 5, StatePaused},
		{Paused, at, 0, StatePaused},
		{On, s.ClosesAt.Add(-time.Millisecond), 1, StateOpen},
		{On, s.ClosesAt, 1, StateClosed},
		{Paused, s.ClosesAt, 1, StateClosed},
		{Closed, at, 5, StateClosed},
	} {
		s.Switch = c.turn
		if got := s.StateAt(c.now, c.left); got != c.want {
			t.Errorf("switch %s, %s after opening, %d left: %s, want %s", c.turn, c.now.Sub(at), c.left, got, c.want)
		}
	}
	s.ClosesAt, s.Switch = time.Time{}, On
	if got := s.StateAt(at.AddDate(50, 0, 0), 1); got != StateOpen {
		t.Errorf("a sale without end is %s", got)
	}
}

func TestOrderID(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 0, 0, 999, time.UTC)
	id := NewOrderID(at, math.MaxUint32)
	if id.Sequence() != math.MaxUint32 || !id.Time().Equal(at.Truncate(time.Second)) {
		t.Fatalf("%s is sequence %d of %s", id, id.Sequence(), id.Time())
	}
	if next := NewOrderID(at.Add(time.Second), 0); next <= id {
		t.Fatal("an id of a later second is smaller")
	}
	if NewOrderID(Epoch.AddDate(-1, 0, 0), 1) != 1 ||
		NewOrderID(Epoch.AddDate(100, 0, 0), 0) != math.MaxInt64-math.MaxUint32 {
		t.Fatal("times outside the range are not clamped")
	}
	for _, s := range []string{"", "0", "-1", "+1", "01", "1.0", "1e3", " 1", "9223372036854775808", "0x1"} {
		if _, err := ParseOrderID(s); err == nil {
			t.Errorf("order id %q is accepted", s)
		}
	}
	if got, err := ParseOrderID(id.String()); err != nil || got != id {
		t.Fatalf("%s is read as %s, %v", id, got, err)
	}
}
