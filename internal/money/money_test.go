package money

import "testing"

func TestDecimals(t *testing.T) {
	for _, row := range []struct {
		code            string
		decimals        int
		whole, fraction string // of 1999
	}{
		{"EUR", 2, "19", "99"}, {"JPY", 0, "1999", ""}, {"KWD", 3, "1", "999"}, {"CLF", 4, "0", "1999"}, {"", 2, "19", "99"},
		{"???", 2, "19", "99"},
	} {
		whole, fraction := Split(1999, row.code)
		if d := Decimals(row.code); d != row.decimals || whole != row.whole || fraction != row.fraction {
			t.Errorf("%s: %d decimals, %q and %q, want %+v", row.code, d, whole, fraction, row)
		}
	}
	if whole, fraction := Split(5, "EUR"); whole != "0" || fraction != "05" {
		t.Errorf("5 cents are %s.%s", whole, fraction)
	}
}

func TestUnusualListsTheExceptionsOnly(t *testing.T) {
	all := Unusual()
	if _, ok := all["EUR"]; ok || all["KWD"] != 3 || len(all) < 20 {
		t.Errorf("%v", all)
	}
	if d, ok := all["JPY"]; !ok || d != 0 {
		t.Errorf("JPY: %d, %v", d, ok)
	}
}
