package policy

import (
	"math"

	"sluice/internal/spelling"
)

// nearest returns the name that is most similar to a misspelt one, or "". It differs by at most two letters, or by a
// fifth of a long name.
func nearest(wrong string, names []string) string {
	best, bestDistance := "", math.MaxInt
	if len(wrong) > 32 {
		return ""
	}
	for _, name := range names {
		if d := spelling.Distance(wrong, name); d < bestDistance && d <= max(2, len(name)/5) && d < len(name) {
			best, bestDistance = name, d
		}
	}
	return best
}
