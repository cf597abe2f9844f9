// Package plural formats numbers with their nouns.
package plural

import "strconv"

// Count returns "1 order", or "2 orders" for any other number. It is for nouns whose plural ends in s.
func Count[N ~int | ~int64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.FormatInt(int64(n), 10) + " " + noun
}
