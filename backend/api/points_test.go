package api

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sluice/backend/sale"
)

type fakePoints struct{ err error }

func (f fakePoints) Balance(_ context.Context, buyer string) (int64, error) {
	return int64(len(buyer)), f.err
}

func TestPointsAreThoseOfTheBuyer(t *testing.T) {
	w := newWorld()
	for _, c := range []struct {
		err    error
		status int
		body   string
	}{{nil, 200, `{"points":3}`}, {sale.ErrUnavailable, 503, ""}, {errors.New("unexpected"), 500, ""}} {
		cfg := w.config(t)
		cfg.Points = fakePoints{c.err}
		s := serve(t, cfg)
		if got := s.Do("GET", "/v1/me/points", "", "Authorization: "+bearerOf(t, "ann")); got.Status != c.status ||
			!strings.Contains(got.Body, c.body) {
			t.Errorf("%v: %d %s", c.err, got.Status, got.Body)
		}
		if got := s.Do("GET", "/v1/me/points", ""); got.Status != 401 {
			t.Errorf("without a token: %d", got.Status)
		}
	}
}
