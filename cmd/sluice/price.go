package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/text/currency"

	"sluice/backend/sale"
	"sluice/client"
	"sluice/internal/money"
)

// priceText writes 1999 of EUR as "19.99 EUR".
func priceText(p client.Price) string {
	whole, fraction := money.Split(p.Amount, p.Currency)
	if fraction != "" {
		whole += "." + fraction
	}
	return whole + " " + p.Currency
}

// priceForm has the whole part, the fraction with and without its point, and the currency.
var priceForm = regexp.MustCompile(`^ *(\d+)(\.(\d*))? *([A-Za-z]{3})$`)

// parsePrice reads "19.99EUR", "19 EUR" or "5000JPY" into the currency's minor unit.
func parsePrice(s string) (p client.Price, err error) {
	const want = "want an amount and a currency, such as 19.99EUR"
	parts := priceForm.FindStringSubmatch(s)
	switch {
	case s == "":
		return p, errors.New(want)
	case strings.Contains(s, ","):
		return p, fmt.Errorf("%q: %s, with a point", s, want)
	case strings.Trim(s, "0123456789. ") == "":
		return p, fmt.Errorf("%q has no currency: want an amount and a currency, such as %sEUR", s, strings.TrimSpace(s))
	case parts == nil:
		return p, fmt.Errorf("%q: %s", s, want)
	}
	whole, point, fraction, code := parts[1], parts[2], parts[3], parts[4]
	if _, err := currency.ParseISO(code); err != nil {
		return p, fmt.Errorf("%q: %q is no currency of ISO 4217: use one such as EUR", s, code)
	}
	if upper := strings.ToUpper(code); code != upper {
		return p, fmt.Errorf("%q: write the currency as %s", s, upper)
	}
	decimals := money.Decimals(code)
	if point == "" {
		fraction = strings.Repeat("0", decimals)
	}
	if len(fraction) != decimals {
		return p, fmt.Errorf("%q: %s; %s has %d decimals", s, want, code, decimals)
	}
	n, err := strconv.ParseUint(whole+fraction, 10, 64)
	if err != nil || n > sale.MaxAmount {
		most := priceText(client.Price{Amount: sale.MaxAmount, Currency: code})
		return p, fmt.Errorf("%q: an amount is at most %s", s, most)
	}
	return client.Price{Amount: int64(n), Currency: code}, nil
}
