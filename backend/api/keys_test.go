package api

import (
	"testing"

	"sluice/backend/web/httpserver/servertest"
	"sluice/internal/token"
	"sluice/internal/token/tokentest"
)

func TestOnlyTokensOfTheKeysAreAccepted(t *testing.T) {
	keys := tokentest.New()
	w := newWorld()
	cfg := w.config(t)
	var err error
	if cfg.Tokens, err = token.Open(keys.File(t), keys.Secret, token.Options{}); err != nil {
		t.Fatal(err)
	}
	s := serve(t, cfg)
	bought := 0
	for _, c := range keys.Cases() {
		if !c.InHeader() || len(c.Token) > 8000 { // longer than a header may be
			continue
		}
		got := s.Do("POST", "/v1/sales/drop/orders", "", "Authorization: Bearer "+c.Token)
		if c.Subject == "" {
			servertest.WantProblem(t, got, 401, "unauthorized")
			if detail := got.Field(t, "detail"); got.Status != 401 || detail != "A valid token is required." {
				t.Errorf("%s: status %d, %s", c.Name, got.Status, detail)
			}
			continue
		}
		bought++
		if got.Status != 202 {
			t.Errorf("%s: status %d", c.Name, got.Status)
		} else if buyer := w.requests[len(w.requests)-1].Buyer; buyer != c.Subject {
			t.Errorf("%s: the buyer is %q, want %q", c.Name, buyer, c.Subject)
		}
	}
	if len(w.requests) != bought {
		t.Errorf("%d purchases, want %d", len(w.requests), bought)
	}
}

func TestIssuerAndAudience(t *testing.T) {
	keys := tokentest.New()
	w := newWorld()
	cfg := w.config(t)
	var err error
	cfg.Tokens, err = token.Open(keys.File(t), keys.Secret, token.Options{Expect: tokentest.Expected})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, cfg)
	for _, c := range keys.ExpectedCases() {
		want := 401
		if c.Subject != "" {
			want = 202
		}
		got := s.Do("POST", "/v1/sales/drop/orders", "", "Authorization: Bearer "+c.Token)
		if got.Status != want {
			t.Errorf("%s: status %d, want %d", c.Name, got.Status, want)
		}
	}
}
