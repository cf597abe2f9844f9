package policy

import "math"

// nearest returns the name that is most similar to a misspelt one, or "". It differs by at most two letters, or by a
// fifth of a long name.
func nearest(wrong string, names []string) string {
	best, bestDistance := "", math.MaxInt
	if len(wrong) > 32 {
		return ""
	}
	for _, name := range names {
		if d := distance(wrong, name); d < bestDistance && d <= max(2, len(name)/5) && d < len(name) {
			best, bestDistance = name, d
		}
	}
	return best
}

// distance returns the number of insertions, deletions, replacements and transpositions of adjacent letters between a
// and b (optimal string alignment).
func distance(a, b string) int {
	previous2, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], previous2[j-2]+1)
			}
		}
		previous2, previous, current = previous, current, previous2
	}
	return previous[len(b)]
}
