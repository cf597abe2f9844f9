// Package money provides the number of decimals of ISO 4217 currencies, for amounts in minor units such as cents.
package money

import (
	"fmt"

	"golang.org/x/text/currency"
)

// usual is the number of decimals of most currencies.
const usual = 2

// Decimals returns the number of decimals of a currency: 2 for EUR, 0 for JPY, and 2 for an unknown currency.
func Decimals(code string) int {
	unit, err := currency.ParseISO(code)
	if err != nil {
		return usual
	}
	decimals, _ := currency.Standard.Rounding(unit)
	return decimals
}

// Split returns the digits of an amount of minor units before and after the decimal point: "19" and "99" for 1999 EUR,
// "5000" and "" for 5000 JPY. amount must not be negative.
func Split(amount int64, code string) (whole, fraction string) {
	decimals := Decimals(code)
	digits := fmt.Sprintf("%0*d", decimals+1, amount)
	point := len(digits) - decimals
	return digits[:point], digits[point:]
}

// Unusual returns the current currencies whose number of decimals is not 2.
func Unusual() map[string]int {
	found := map[string]int{}
	for all := currency.Query(); all.Next(); {
		code := all.Unit().String()
		if decimals := Decimals(code); decimals != usual {
			found[code] = decimals
		}
	}
	return found
}
