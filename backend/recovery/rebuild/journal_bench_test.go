package rebuild_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/admission/admissiontest"
	"sluice/backend/recovery/journal"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// BenchmarkJournal measures the rate of accepted purchases with a journal, as a ratio of the rate without one. Both use
// the same Redis in turn.
func BenchmarkJournal(b *testing.B) {
	ctx, quiet := context.Background(), slog.New(slog.DiscardHandler)
	server := testenv.StartRedis(b, "--appendonly", "yes", "--appendfsync", "everysec")
	store := openDatabase(b, storetest.SQLite(b))
	g := openGuards(b, server.URL, keyspace.Space{})
	s, err := store.CreateSale(ctx, storetest.Sale("s", sale.MaxStock))
	if err != nil {
		b.Fatal(err)
	}
	if err := newRebuilder(b, rebuild.Config{
		Pinner: g, Store: store, Log: quiet, JournalWait: time.Millisecond,
		Pause: func(context.Context, string, string) error { return nil },
	}).Run(ctx); err != nil {
		b.Fatal(err)
	}
	_ = s
	pipe, err := redisconn.NewPipeline(g.Client())
	if err != nil {
		b.Fatal(err)
	}
	pipelined := func(c *admission.Config) { c.Client = pipe }
	none := admissiontest.NewAdmitter(b, g.Client(), keyspace.Space{}, pipelined)
	sellers := map[string]*admission.Admitter{"none": none}
	for _, mode := range []journal.Sync{journal.Second, journal.Always} {
		j, err := journal.Open(b.TempDir(), journal.Config{Sync: mode, Log: quiet})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = j.Close() })
		writer := newWriter(rebuild.JournalWriterConfig{
			Journal: j, Restorer: rebuild.NewRestorer(g.Of(0), g.Raw(), 0, store), Store: store,
		})
		recorded := func(c *admission.Config) { c.Recorder = rebuild.JournalWriters{writer} }
		sellers[string(mode)] = admissiontest.NewAdmitter(b, g.Client(), keyspace.Space{}, pipelined, recorded)
	}
	var buyers atomic.Int64
	round := func(seller *admission.Admitter) time.Duration {
		began := time.Now()
		var wg sync.WaitGroup
		for range 128 {
			wg.Go(func() {
				for range 60 {
					name := fmt.Sprint("buyer", buyers.Add(1))
					d, err := seller.Admit(
						ctx, admission.Request{SaleID: "s", Buyer: name, Key: name, KeyTTL: time.Second, Fingerprint: "f"},
					)
					if err != nil || d.Outcome != sale.Accepted {
						b.Error(d.Outcome, err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(began)
	}
	took := map[string]time.Duration{}
	for b.Loop() {
		for _, name := range []string{"none", "second", "always", "always", "second", "none"} {
			took[name] += round(sellers[name])
		}
	}
	b.ReportMetric(float64(took["none"])/float64(took["second"]), "second/none")
	b.ReportMetric(float64(took["none"])/float64(took["always"]), "always/none")
	b.ReportMetric(float64(2*b.N*128*60)/took["none"].Seconds(), "none-orders/s")
}
