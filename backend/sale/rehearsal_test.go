package sale

import (
	"strings"
	"testing"
)

func TestMeetsSeparatesRehearsals(t *testing.T) {
	for _, c := range []struct {
		buyer, saleID string
		want          bool
	}{
		{"ann", "shoe", true},
		{"ann", "rehearsal-shoe-x", false},
		{"", "rehearsal-shoe-x", false},
		{"rehearsal-shoe-x", "rehearsal-shoe-x", false}, // an id without the mark is not a simulated buyer
		{"rehearsal-shoe-x", "shoe", true},
		{RehearsalBuyer("rehearsal-shoe-x", "1"), "rehearsal-shoe-x", true},
		{RehearsalBuyer("rehearsal-shoe-x", "1"), "rehearsal-shoe-y", false},
		{RehearsalBuyer("rehearsal-shoe-x", "1"), "shoe", false},
		{RehearsalBuyer("rehearsal-shoe-x", ""), "rehearsal-shoe-x", true},
		{"tenant/ann", "shoe", true},
		{"tenant/ann", "tenant", true},
	} {
		if got := Meets(c.buyer, c.saleID); got != c.want {
			t.Errorf("Meets(%q, %q) is %v", c.buyer, c.saleID, got)
		}
	}
}

func TestRehearsalIDIsValid(t *testing.T) {
	for _, saleID := range []string{"s", "shoe", strings.Repeat("x", MaxIDLen)} {
		id := RehearsalID(saleID, "abcdefgh12")
		if err := ValidateID(id); err != nil || !IsRehearsal(id) || !strings.HasSuffix(id, "-abcdefgh12") {
			t.Errorf("rehearsal of %q: %q, %v", saleID, id, err)
		}
	}
}
