package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/text/currency"

	"sluice/client"
)

// priceText writes 1999 of EUR as "19.99 EUR".
func priceText(p client.Price) string {
	decimals := decimalsOf(p.Currency)
	digits := fmt.Sprintf("%0*d", decimals+1, p.Amount)
	if decimals == 0 {
		return digits + " " + p.Currency
	}
	point := len(digits) - decimals
	return digits[:point] + "." + digits[point:] + " " + p.Currency
}

// parsePrice reads "19.99EUR", "19 EUR" or "5000JPY" into the currency's minor unit.
func parsePrice(s string) (client.Price, error) {
	bad := fmt.Errorf("%q: want an amount and a currency, such as 19.99EUR", s)
	if s == "" {
		return client.Price{}, errors.New("want an amount and a currency, such as 19.99EUR")
	}
	if strings.Contains(s, ",") {
		return client.Price{}, fmt.Errorf("%w, with a point", bad)
	}
	if len(s) < 4 {
		return client.Price{}, bad
	}
	code := s[len(s)-3:]
	if strings.Trim(s, "0123456789. ") == "" {
		return client.Price{}, fmt.Errorf("%q has no currency: want an amount and a currency, such as %sEUR", s,
			strings.TrimSpace(s))
	}
	if strings.Trim(strings.ToUpper(code), "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return client.Price{}, bad
	}
	if _, err := currency.ParseISO(code); err != nil {
		return client.Price{}, fmt.Errorf("%q: %q is no currency of ISO 4217: use one such as EUR", s, code)
	}
	if upper := strings.ToUpper(code); code != upper {
		return client.Price{}, fmt.Errorf("%q: write the currency as %s", s, upper)
	}
	whole, fraction, point := strings.Cut(strings.TrimSpace(s[:len(s)-3]), ".")
	decimals := decimalsOf(code)
	if whole == "" || point && len(fraction) != decimals {
		return client.Price{}, fmt.Errorf("%w; %s has %d decimals", bad, code, decimals)
	}
	if !point {
		fraction = strings.Repeat("0", decimals)
	}
	n, err := strconv.ParseUint(whole+fraction, 10, 53)
	if err != nil {
		return client.Price{}, bad
	}
	return client.Price{Amount: int64(n), Currency: code}, nil
}

// decimalsOf is how many digits of a currency are behind the point: two for euros, none for yen.
func decimalsOf(code string) int {
	unit, err := currency.ParseISO(code)
	if err != nil {
		return 2
	}
	decimals, _ := currency.Standard.Rounding(unit)
	return decimals
}
