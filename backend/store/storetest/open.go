package storetest

import (
	"context"
	"sync"
	"testing"

	"sluice/backend/store"
)

func openTwice(t *testing.T, e *env) {
	fresh := e.bareURL(t)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			s, err := store.Open(context.Background(), fresh, store.Config{})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := store.NewSales(s).SaleSummaries(context.Background()); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func reopen(t *testing.T, e *env) {
	s := e.create(t, "s", 10)
	e.write(t, Orders("s", 4)...)
	again := &env{Store: Open(t, e.url), url: e.url, bareURL: e.bareURL, ctx: e.ctx}
	again.wantRows(t, "s", 4)
	if now, _, err := again.Sale(e.ctx, "s"); err != nil || now != s {
		t.Fatalf("%+v, %v", now, err)
	}
	again.write(t, Orders("s", 4)...)
	e.wantRows(t, "s", 8)
}
