package nginx

import (
	"fmt"
	"strings"
	"testing"

	"sluice/internal/token/tokentest"
)

const (
	plainHeader = `{"alg":"HS256","typ":"JWT"}`
	year2100    = "4102444800"
)

// hs256 signs any header and claims with the secret.
func hs256(header, claims string) string {
	return tokentest.HS(tokentest.Segments(header, claims), []byte(secret))
}

func TestEdgeAcceptsTokensFromBothHeaders(t *testing.T) {
	t.Parallel()
	variants(t, edgeAcceptsTokensFromBothHeaders)
}

func edgeAcceptsTokensFromBothHeaders(t *testing.T, f *variant) {
	backend := echo(t)
	e := startEdge(t, `return { rules = { { name = "token", key = "token", rate = "1r/h", burst = 0 } } }`, f.on(t),
		backend.addr)
	raw := strings.TrimPrefix(signed(t, "ann"), "Bearer ")
	for i, c := range []struct {
		name   string
		header []string
		status int
	}{
		{"Authorization", []string{"Authorization", "Bearer " + raw}, 200},
		{"the same buyer in the other header", []string{"Token", raw}, 429},
		{
			"the same buyer with another token",
			[]string{"Authorization", "bearer  " + hs256(plainHeader, `{"sub":"ann","exp":`+year2100+`}`)}, 429,
		},
		{"a scheme in the other header, of a verified token", []string{"Token", "Bearer " + raw}, 401},
		{
			"the scheme as it was sent before, in the other header",
			[]string{"Token", "bearer  " + hs256(plainHeader, `{"sub":"ann","exp":`+year2100+`}`)}, 401,
		},
		{"another buyer", []string{"Token", hs256(plainHeader, `{"sub":"bob","exp":`+year2100+`}`)}, 200},
		{
			"no typ, a fraction, claims of others",
			[]string{
				"Token",
				hs256(`{"alg":"HS256"}`, `{"iss":"shop","aud":["a"],"sub":"cy\u00e9 \ud83d\ude00","exp":`+year2100+`.5,"nbf":1e3}`),
			},
			200,
		},
		{
			"a name of 255 bytes",
			[]string{"Token", hs256(plainHeader, `{"sub":"`+strings.Repeat("d", 255)+`","exp":`+year2100+`}`)}, 200,
		},
		{"Basic and a token", []string{"Authorization", "Basic YTpi", "Token", raw}, 401},
		{"nothing", nil, 401},
		{"Bearer alone", []string{"Authorization", "Bearer "}, 401},
	} {
		if got := e.do("GET", fmt.Sprintf("/%d", i), c.header...); got.status != c.status {
			t.Errorf("%s: status %d, want %d", c.name, got.status, c.status)
		}
	}
	for _, r := range backend.requests() {
		if r.header.Get("Authorization") != "" && r.header.Get("Token") != "" {
			t.Errorf("%s reached the backend with two tokens", r.path)
		}
	}
	// A name may have any character but control characters; the log must stay one object a line.
	if entry := e.logged(4, 200)[2]; entry["buyer"] != "cyé 😀" {
		t.Errorf("logged buyer %q", entry["buyer"])
	}
}

// A cached token expires with its exp, and a similar token does not match it.
func TestCachedTokenExpires(t *testing.T) {
	good := hs256(plainHeader, `{"sub":"ann","exp":2000000000}`)
	got := requireLua(t).run(t, `
		local token = require "sluice.token"
		local verify = token.verify
		local raw, out = `+luaString(good)+`, {}
		local function try(...) out[#out + 1] = table.concat({ tostring((verify(...))), select(2, verify(...)) }, " ") end
		try(raw, 1999999998)
		try(raw, 1999999999)
		try(raw, 2000000000)
		try(raw .. "x", 1999999999)
		try(raw:sub(1, -2), 1999999999)
		local header = "Bearer " .. raw
		verify(header, 1999999998, 8)
		local function cached(text, now) out[#out + 1] = tostring((token.cached(text, now))) end
		cached(header, 1999999999)
		cached(header, 2000000000)
		cached(header .. "x", 1999999999)
		verify(raw, 1999999998) -- in the header token
		cached(raw, 1999999999)
		cached("", 1999999999)
		return table.concat(out, "; ")
	`)
	if want := "ann; ann; nil expired; nil signature; nil signature; ann; nil; nil; nil; nil"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Only a token that is sent again is cached: single requests do not displace the tokens of buyers that wait.
func TestTokensSentOnceAreNotCached(t *testing.T) {
	good := hs256(plainHeader, `{"sub":"ann","exp":2000000000}`)
	other := hs256(plainHeader, `{"sub":"bob","exp":2000000000}`)
	got := requireLua(t).run(t, `
		local token, cache = require "sluice.token", require "sluice.token.cache"
		cache.clear()
		local raw, other = `+luaString(good)+`, `+luaString(other)+`
		local header, out = "Bearer " .. raw, {}
		for _ = 1, 3 do
			out[#out + 1] = token.verify(header, 1999999999, 8)
			out[#out + 1] = tostring((token.cached(header, 1999999999)))
		end
		out[#out + 1] = token.verify("Bearer " .. other, 1999999999, 8)
		out[#out + 1] = tostring((token.cached("Bearer " .. other, 1999999999)))
		local again = 0
		for i = 1, 5000 do cache.is_new(("%08d"):format(i * 7919)) end
		for i = 1, 5000 do again = again + (cache.is_new(("%08d"):format(i * 7919)) and 0 or 1) end
		out[#out + 1] = tostring(again > 3000)
		return table.concat(out, "; ")
	`)
	if want := "ann; nil; ann; ann; ann; ann; bob; nil; true"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The verified cache is bounded, and does not keep texts that are longer than usual.
func TestVerifiedCacheIsBounded(t *testing.T) {
	got := requireLua(t).run(t, `
		local cache = require "sluice.token.cache"
		cache.clear()
		local kept, n = 0, 20000
		for i = 1, n do cache.set("token " .. i, "subject " .. i, 50) end
		for i = 1, n do
			if cache.get("token " .. i, 10) == "subject " .. i then kept = kept + 1 end
		end
		local newest = cache.get("token " .. n, 10)
		local expired = cache.get("token " .. n, 50)
		local long = ("x"):rep(1025)
		cache.set(long, "long", 50)
		local out = { tostring(kept >= 5000 and kept <= 15000), newest, tostring(expired), tostring((cache.get(long, 10))) }
		cache.clear()
		out[#out + 1] = tostring((cache.get("token " .. n, 10)))
		return table.concat(out, "; ")
	`)
	if want := "true; subject 20000; nil; nil; nil"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A flood of forged tokens is refused by the limit of its address, before a signature is verified.
func TestBadTokensUseTheQuotaOfTheirAddress(t *testing.T) {
	variants(t, badTokensUseTheQuotaOfTheirAddress)
}

func badTokensUseTheQuotaOfTheirAddress(t *testing.T, f *variant) {
	e := startEdge(t, `return { rules = {
		{ name = "ip",    key = "ip",    rate = "1r/h", burst = 1 },
		{ name = "token", key = "token", rate = "1r/h", burst = 5 },
	} }`, f.on(t))
	bad := []string{"Authorization", "Bearer a.b.c"}
	if got := statuses(e.do("GET", "/", bad...), e.do("GET", "/", bad...),
		e.do("GET", "/", bad...)); got != "401 401 429" {
		t.Errorf("bad tokens: %s, want 401 401 429", got)
	}
	if got := e.do("GET", "/", "Authorization", signed(t, "ann")).status; got != 429 {
		t.Errorf("then a good one: %d, want 429", got)
	}
}
