package api

import (
	"testing"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
)

func TestTokensOfAllKeysBuyAndNoOthers(t *testing.T) {
	keys := tokentest.New()
	w := newWorld()
	cfg := w.config(t)
	var err error
	if cfg.Tokens, err = token.Open(keys.File(t), keys.Secret); err != nil {
		t.Fatal(err)
	}
	a, err := NewPublic(cfg)
	s := serve(t, a, err)
	bought := 0
	for _, c := range keys.Cases() {
		if !c.InHeader() || len(c.Token) > 8000 { // no header is as long as this
			continue
		}
		got := s.ask("POST", "/v1/sales/drop/orders", "", "Authorization: Bearer "+c.Token)
		if c.Subject == "" {
			wantProblem(t, got, 401, "unauthorized")
			if detail := got.field(t, "detail"); got.status != 401 || detail != "A valid token is needed." {
				t.Errorf("%s: status %d, %s", c.Name, got.status, detail)
			}
			continue
		}
		bought++
		if got.status != 202 {
			t.Errorf("%s: status %d", c.Name, got.status)
		} else if buyer := w.requests[len(w.requests)-1].Buyer; buyer != c.Subject {
			t.Errorf("%s: sold to %q, want %q", c.Name, buyer, c.Subject)
		}
	}
	if len(w.requests) != bought {
		t.Errorf("%d purchases, want %d", len(w.requests), bought)
	}
}
