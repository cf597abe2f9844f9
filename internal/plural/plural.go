// Package plural formats numbers with their nouns.
package plural

import (
	"strconv"
	"strings"
)

// Count returns "1 order", or "2 orders" for any other number. It is for nouns whose plural ends in s.
func Count[N ~int | ~int64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.FormatInt(int64(n), 10) + " " + noun
}

// Named returns "shard 1", or "shards 1, 4" for several numbers.
func Named(noun string, numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(n)
	}
	if len(numbers) != 1 {
		noun += "s"
	}
	return noun + " " + strings.Join(texts, ", ")
}
