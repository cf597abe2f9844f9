package nginx

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
)

// BenchmarkToken measures the edge's verifier by a loop inside nginx: microseconds for a new token, by its key and its
// form, and for a cached one.
func BenchmarkToken(b *testing.B) {
	w := tokentest.New()
	server := requireLua(b)
	const n = 500
	head := func(alg, kid string) string { return `{"alg":"` + alg + `","typ":"JWT","kid":"` + kid + `"}` }
	plain := `{"sub":"4c9a8f0e2b7d6%011d","exp":4102444800,"iat":1767268800}`
	for _, c := range []struct{ name, alg, kid, header, claims string }{
		{"HS256", token.HS256, "", plainHeader, plain},
		{"HS256 with kid, iss, aud, jti", token.HS256, tokentest.First, head(token.HS256, tokentest.First),
			`{"iss":"https://shop.example","aud":"shop","sub":"4c9a8f0e2b7d6%011d","exp":4102444800,"iat":1767268800,"jti":"7"}`},
		{
			"HS256 for the strict reader", token.HS256, "", plainHeader,
			`{"aud":["shop"],"sub":"4c9a8f0e2b7d6%011d","exp":4102444800,"iat":1767268800}`,
		},
		{"EdDSA", token.EdDSA, tokentest.Edward, head(token.EdDSA, tokentest.Edward), plain},
		{"RS256", token.RS256, tokentest.Rivest, head(token.RS256, tokentest.Rivest), plain},
		{"PS256", token.PS256, tokentest.Salted, head(token.PS256, tokentest.Salted), plain},
		{"ES256", token.ES256, tokentest.Curved, head(token.ES256, tokentest.Curved), plain},
	} {
		b.Run(c.name, func(b *testing.B) {
			var tokens []string
			for i := range n {
				tokens = append(tokens, w.Sign(c.alg, c.kid, tokentest.Segments(c.header, fmt.Sprintf(c.claims, i))))
			}
			var fresh, known float64
			rounds := 0
			for b.Loop() {
				f, k := timed(b, server, w, tokens)
				fresh, known, rounds = fresh+f, known+k, rounds+1
			}
			b.ReportMetric(fresh/float64(rounds), "us/fresh")
			b.ReportMetric(known/float64(rounds), "us/known")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// timed verifies these tokens ten times without and ten times with the verified cache, after ten rounds of warm-up.
func timed(b *testing.B, server *luaServer, w *tokentest.Issuer, tokens []string) (fresh, known float64) {
	b.Helper()
	out, err := server.try(`
		jit.opt.start("loopunroll=60", "maxrecord=10000", "maxsnap=1500", "maxirconst=2000") -- as edge.lua has it
		local clock, keys, token = require "sluice.clock", require "sluice.token.keys", require "sluice.token"
		local set = assert(keys.set(` + luaString(w.Secret) + `, assert(keys.parse(` + luaString(string(w.Keys)) + `))))
		local tokens = ` + list(tokens) + `
		local before = token.use(set)
		local function round()
			for i = 1, #tokens do assert(token.verify(tokens[i], 1800000000)) end
		end
		local fresh, known = 0, 0
		for i = 1, 20 do
			token.use(set)
			local start = clock.now()
			round()
			local middle = clock.now()
			round()
			if i > 10 then fresh, known = fresh + middle - start, known + clock.now() - middle end
		end
		token.use(before)
		return fresh / 10 / #tokens .. " " .. known / 10 / #tokens`)
	if err != nil {
		b.Fatal(err)
	}
	f, k, _ := strings.Cut(out, " ")
	if fresh, err = strconv.ParseFloat(f, 64); err == nil {
		known, err = strconv.ParseFloat(k, 64)
	}
	if err != nil {
		b.Fatal(out)
	}
	return fresh, known
}
