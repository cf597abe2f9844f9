package edges

import (
	"context"
	"log/slog"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"sluice/backend/admission"
	"sluice/backend/admission/admissiontest"
	"sluice/backend/api"
	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store/storetest"
	"sluice/backend/web/httpserver"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

// startRealBackend runs the backend over an embedded Redis and SQLite behind an edge, and returns its stock.
func startRealBackend(t *testing.T, m *market) *admission.Stock {
	t.Helper()
	client := testenv.NewClient(miniredis.RunT(t).Addr())
	t.Cleanup(func() { client.Close() })
	space := keyspace.Space{}
	stock := admission.NewStock(admission.StockConfig{Client: client, Space: space})
	app, err := api.New(api.Config{
		Admitter: admissiontest.NewAdmitter(t, client, space),
		Stock:    stock,
		Finder:   admission.NewFinder(stock),
		Orders:   storetest.Open(t, storetest.SQLite(t)),
		Dead:     queue.Shards{queue.NewList(client, 0, queue.Config{})},
		Tokens:   tokentest.Key(t, secret),
		Archived: func(string) bool { return false }, Known: func(string) bool { return false },
		Intact: func(sale.OrderID) func(context.Context) bool {
			return func(context.Context) bool { return true }
		},
		QueueFull: func(spread.Part) time.Duration { return 5 * time.Second },
		Server:    httpserver.Config{Log: slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		t.Fatal(err)
	}
	listener := testenv.Listen(t)
	done := make(chan error, 1)
	go func() { done <- app.Serve(t.Context(), listener) }()
	t.Cleanup(func() { <-done })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.real = httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: listener.Addr().String()})
	return stock
}

// loadSale loads a sale that is open.
func loadSale(t *testing.T, stock *admission.Stock, id string, units int64) sale.Sale {
	t.Helper()
	def := sale.Sale{
		ID: id, Title: "Thing", Price: sale.Price{Amount: 100, Currency: "EUR"}, Stock: units, PerBuyer: 1,
		OpensAt: time.Now().Add(-time.Hour).Truncate(time.Millisecond), Switch: sale.On, Version: 1,
	}
	none := func(context.Context, spread.Part, func(sale.Order) error) error { return nil }
	if err := stock.Load(t.Context(), def, none); err != nil {
		t.Fatal(err)
	}
	return def
}

// updateSale gives a sale its next version.
func updateSale(t *testing.T, stock *admission.Stock, def *sale.Sale, change func(*sale.Sale)) {
	t.Helper()
	def.Version++
	change(def)
	if err := stock.Update(t.Context(), *def); err != nil {
		t.Fatal(err)
	}
}
