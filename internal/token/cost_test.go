package token_test

import (
	"testing"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
)

// Tokens of public keys are cached, so for them this measures a cache lookup.
func BenchmarkVerifyByKey(b *testing.B) {
	w := tokentest.New()
	keys := open(b, w.File(b), w.Secret)
	for _, c := range []struct{ alg, kid string }{
		{token.HS256, tokentest.First}, {token.EdDSA, tokentest.Edward}, {token.RS256, tokentest.Rivest},
		{token.PS256, tokentest.Salted}, {token.ES256, tokentest.Curved},
	} {
		raw := w.Sign(
			c.alg,
			c.kid,
			tokentest.Segments(`{"alg":"`+c.alg+`","typ":"JWT","kid":"`+c.kid+`"}`,
				`{"sub":"4c9a8f0e2b7d61535c0fa1b2","exp":4102444800}`),
		)
		b.Run(c.alg, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := keys.Verify(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
