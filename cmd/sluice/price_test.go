package main

import (
	"strconv"
	"testing"
)

func TestPricesInTheMinorUnitOfTheirCurrency(t *testing.T) {
	for in, want := range map[string]string{
		"19.99EUR": "1999 19.99 EUR", "19 EUR": "1900 19.00 EUR", "0EUR": "0 0.00 EUR", "0.05USD": "5 0.05 USD",
		"5000JPY": "5000 5000 JPY", "1.234KWD": "1234 1.234 KWD", "9999999999999.99EUR": "999999999999999 9999999999999.99 EUR",
	} {
		p, err := parsePrice(in)
		if got := strconv.FormatInt(p.Amount, 10) + " " + priceText(p); err != nil || got != want {
			t.Errorf("%s is read as %q, %v; want %q", in, got, err, want)
		}
	}
	for _, bad := range []string{
		"", "EUR", "x", "-1EUR", "1.9EUR", "1.999EUR", "5000.00JPY", "1eur", "1XXY", ".99EUR", "1e3EUR",
	} {
		if p, err := parsePrice(bad); err == nil {
			t.Errorf("%q is read as %v", bad, p)
		}
	}
	for bad, most := range map[string]string{
		"10000000000000EUR": "9999999999999.99 EUR", "99999999999999999999JPY": "999999999999999 JPY",
	} {
		if p, err := parsePrice(bad); err == nil || err.Error() != strconv.Quote(bad)+": an amount is at most "+most {
			t.Errorf("%q is read as %v, %v", bad, p, err)
		}
	}
}
