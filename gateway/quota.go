package gateway

import (
	"math"
	"strconv"
	"time"
)

// The header fields RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-11). The draft may still
// rename its parameters; only this file contains them.

// policyMember returns a rule's member of RateLimit-Policy: a quota of requests, and the window in seconds in which
// it is restored.
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

// appendQuota appends a member of RateLimit: the remaining requests, and the time until there is one more.
func appendQuota(dst []byte, name string, remaining int, next time.Duration) []byte {
	dst = strconv.AppendQuote(appendMember(dst, ""), name)
	dst = strconv.AppendInt(append(dst, ";r="...), int64(remaining), 10)
	return strconv.AppendInt(append(dst, ";t="...), wholeSeconds(next), 10)
}

// wholeSeconds rounds up, to at least 1: a client that returns earlier is refused again.
func wholeSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return max(s, 1)
}

// retryAfter returns the value of Retry-After: the wait in whole seconds, plus a random part of up to a tenth, or of
// one second, so that clients refused together do not return together. random returns a number from 0 to n-1.
func retryAfter(wait time.Duration, random func(n int) int) int64 {
	least := wholeSeconds(wait)
	return least + int64(random(int(max(1, min(least/10, 3600)))+1))
}
