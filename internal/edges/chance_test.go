package edges

import (
	"math/rand/v2"
	"regexp"
	"strings"
)

// What nginx cannot tell from CRLF once it has read a head, see lua/edge/sluice/head.lua.
var ambiguous = regexp.MustCompile(`^\r| \n|\r\r\n`)

// breakHead makes a request that ends its connection, and changes it in up to three places.
func breakHead(random *rand.Rand) string {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	lines := []string{
		pick("GET", "GET", "POST", "PUT", "X-Y_Z") + " " + pick("/", "/a/b", "/a?b=c", "/a%20b/", "/v1/sales/1") + " HTTP/1." + pick("1", "1", "1", "0"),
		"Host: " + pick("x", "Shop.Example:80", "[::1]:80", "127.0.0.1", "a_b", "a.", "x:", "-"),
		"Connection: close",
	}
	for range random.IntN(4) {
		lines = append(lines, pick("Accept", "accept-language", "User-Agent", "Origin", "X-Any", "X_Any", "Cookie", "Range", "Traceparent", "Content-Type", "Token", "Idempotency-Key")+
			":"+pick(" ", "", "  ")+pick("a", "a b", `"c"`, "", "d,e", "\xc3\xa9", "a:b"))
	}
	raw := strings.Join(lines, "\r\n") + "\r\n\r\n"
	bytes := []string{"\r", "\n", "\r\n", " ", "\t", "\x00", "\x01", "\x7f", ":", "/", "\\", "#", "?", "%", "%2", "%41", "%2F", "..", "/../", "//", "@", ",", ";", "\"", "<", "[", "]", "\xff", "A", "9", "H", "Content-Length: 0\r\n", "Host: x\r\n"}
	for range random.IntN(4) {
		at := random.IntN(len(raw) - 4) // what ends the head stays
		switch random.IntN(3) {
		case 0:
			raw = raw[:at] + pick(bytes...) + raw[at:]
		case 1:
			raw = raw[:at] + raw[at+1:]
		default:
			raw = raw[:at] + pick(bytes...) + raw[at+1:]
		}
	}
	return raw
}
