package edges

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// ambiguous matches what nginx cannot distinguish from CRLF after it has read a head; see lua/edge/sluice/head.lua.
var ambiguous = regexp.MustCompile(` \n|\r\r\n`)

// The edges handle random damaged heads alike; whether an answer is right is not tested here. SLUICE_CHANCE is the
// number of heads, SLUICE_CHANCE_SEED the seed that repeats a run.
func TestEdgesAgreeOnRandomHeads(t *testing.T) {
	tries, seed := number(t, "SLUICE_CHANCE", 2000), number(t, "SLUICE_CHANCE_SEED", rand.Uint64())
	t.Logf("SLUICE_CHANCE_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's chance
	both := startBoth(t, options{policy: limitless}, play)
	for i := uint64(0); i < tries; {
		raw := breakHead(random)
		if ambiguous.MatchString(raw) {
			continue
		}
		i++
		compare(t, both, exchange{name: fmt.Sprintf("%q", raw), raw: raw + request("GET", "/last", "Connection: close")})
	}
}

// number returns the number in an environment variable, or a default.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// breakHead returns a request that ends its connection, with up to three random changes.
func breakHead(random *rand.Rand) string {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	lines := []string{
		pick("GET", "GET", "POST", "PUT", "X-Y_Z") + " " + pick("/", "/a/b", "/a?b=c", "/a%20b/",
			"/assets", "/s", "/v1/sales/1") + " HTTP/1." + pick(
			"1",
			"1",
			"1",
			"0",
		),
		"Host: " + pick("x", "Shop.Example:80", "[::1]:80", "[1:2:3:4:5:6:192.0.2.1]", "[2001:db8::7:8]:", "127.0.0.1", "a_b",
			"a.", "x:", "-"),
		"Connection: close",
	}
	for range random.IntN(4) {
		lines = append(
			lines,
			pick(
				"Accept",
				"accept-language",
				"User-Agent",
				"Origin",
				"X-Any",
				"X_Any",
				"Accept_Language",
				"idempotency_key",
				"Cookie",
				"Range",
				"Traceparent",
				"Content-Type",
				"Token",
				"Idempotency-Key",
				"Connection",
				"Expect",
				"X-Forwarded-For",
				"If-None-Match",
				"If-Modified-Since",
				"If-Range",
				"If-Match",
				"If-Unmodified-Since",
				"Content-Range",
				"Authorization",
				"Upgrade",
				"TE",
				"Via",
				"Keep-Alive",
				"Referer",
			)+
				":"+pick(" ", "", "  ", "\t")+pick(
				"a", "a b", `"c"`, "", "d,e", "\xc3\xa9", "a:b", "close", "keep-alive", "100-continue", "192.0.2.1", "Bearer a",
			),
		)
	}
	body := ""
	if random.IntN(16) == 0 {
		lines, body = append(lines, "Content-Length: 2"), "{}"
	}
	raw := strings.Join(lines, "\r\n") + "\r\n\r\n"
	bytes := []string{
		"\r",
		"\n",
		"\r\n",
		" ",
		"\t",
		"\x00",
		"\x01",
		"\x7f",
		":",
		"/",
		"\\",
		"#",
		"?",
		"%",
		"%2",
		"%41",
		"%2F",
		"..",
		"/../",
		"//",
		"@",
		",",
		";",
		"\"",
		"<",
		"[",
		"]",
		"\xff",
		"A",
		"9",
		"H",
		"Content-Length: 0\r\n",
		"Host: x\r\n",
		"Connection: ",
		"keep-alive",
		"Close",
		"::",
	}
	for range random.IntN(4) {
		at := random.IntN(len(raw) - 4) // the end of the head stays
		switch random.IntN(3) {
		case 0:
			raw = raw[:at] + pick(bytes...) + raw[at:]
		case 1:
			raw = raw[:at] + raw[at+1:]
		default:
			raw = raw[:at] + pick(bytes...) + raw[at+1:]
		}
	}
	return raw + body
}
