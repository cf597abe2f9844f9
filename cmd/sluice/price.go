package main

import (
	"errors"
	"fmt"
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
	decimals := money.Decimals(code)
	if whole == "" || point && len(fraction) != decimals {
		return client.Price{}, fmt.Errorf("%w; %s has %d decimals", bad, code, decimals)
	}
	if !point {
		fraction = strings.Repeat("0", decimals)
	}
	n, err := strconv.ParseUint(whole+fraction, 10, 64)
	if errors.Is(err, strconv.ErrRange) || n > sale.MaxAmount {
		return client.Price{}, fmt.Errorf("%q: an amount is at most %s", s, priceText(client.Price{
			Amount: sale.MaxAmount, Currency: code,
		}))
	}
	if err != nil {
		return client.Price{}, bad
	}
	return client.Price{Amount: int64(n), Currency: code}, nil
}
