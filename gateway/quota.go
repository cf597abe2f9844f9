package gateway

import (
	"math"
	"strconv"
	"time"
)

// The header fields that tell a client its quota (draft-ietf-httpapi-ratelimit-headers-11). The draft may still rename its parameters: they are
// spelled here and nowhere else.

// policyMember is a rule's member of the RateLimit-Policy field: quota requests at once, and as many again after perSecond has given them back.
func policyMember(name string, quota int, perSecond float64) string {
	window := max(math.Ceil(float64(quota)/perSecond), 1)
	return strconv.Quote(name) + ";q=" + strconv.Itoa(quota) + ";w=" + strconv.FormatFloat(window, 'f', 0, 64)
}

func appendMember(dst []byte, member string) []byte {
	if len(dst) > 0 {
		dst = append(dst, ", "...)
	}
	return append(dst, member...)
}

// appendQuota appends a member of the RateLimit field: so many requests are left, and one more comes after next.
func appendQuota(dst []byte, name string, left int, next time.Duration) []byte {
	if len(dst) > 0 {
		dst = append(dst, ", "...)
	}
	dst = append(dst, '"')
	dst = append(dst, name...)
	dst = append(dst, `";r=`...)
	dst = strconv.AppendInt(dst, int64(left), 10)
	dst = append(dst, ";t="...)
	return strconv.AppendInt(dst, wholeSeconds(next), 10)
}

// wholeSeconds is rounded up, and 1 at least: a client that returns earlier is refused again.
func wholeSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return max(s, 1)
}

// retryAfter is the wait in whole seconds and up to a tenth more by chance, or one second: those who were refused together should not all
// return together. random returns a number from 0 to n-1.
func retryAfter(wait time.Duration, random func(n int) int) int64 {
	least := wholeSeconds(wait)
	return least + int64(random(int(max(1, min(least/10, 3600)))+1))
}
