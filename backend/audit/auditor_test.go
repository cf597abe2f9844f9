package audit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/backend/audit"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/store"
)

func (s *shop) auditor(cfg audit.AuditorConfig) *audit.Auditor {
	cfg.Log = slog.New(slog.DiscardHandler)
	if cfg.Acquire == nil {
		cfg.Acquire = func(context.Context, keyspace.Shard) bool { return true }
	}
	if cfg.Pause == nil {
		cfg.Pause = func(context.Context, string, string) error { return nil }
	}
	cfg.Checker = s.checker
	a, err := audit.NewAuditor(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func TestAuditorPausesASaleThatDoesNotBalanceTwice(t *testing.T) {
	s := open(t, 20)
	s.buy("ann")
	registry := prometheus.NewRegistry()
	paused := map[string]string{}
	a := s.auditor(audit.AuditorConfig{
		RecheckDelay: time.Millisecond, Metrics: audit.NewMetrics(registry),
		Pause: func(_ context.Context, id, why string) error { paused[id] = why; return nil },
	})
	if _, err := a.RunOnce(t.Context()); err != nil || len(paused) > 0 {
		t.Fatalf("balanced sale: %v, paused %v", err, paused)
	}
	missing, err := keyspace.DecodeMessage(s.redis.RPop(t.Context(), keyspace.Shard(0).Ready()).Val())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reason := paused["s"]; !strings.Contains(reason, "add up to 19") || !strings.Contains(reason, missing.ID.String()) {
		t.Errorf("pause reason %q", reason)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint of the metrics: %v %v", problems, err)
	}
	if got := gathered(t, registry); !strings.Contains(got, `sluice_audits_total{result="unbalanced"} 1`) {
		t.Errorf("the unbalanced audit is not counted:\n%s", got)
	}
	if err := s.redis.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.RunOnce(t.Context()); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("unavailable Redis: %v", err)
	}
	if got := gathered(t, registry); !strings.Contains(got, `sluice_audits_total{result="failed"} 1`) {
		t.Errorf("the failed audit is not counted:\n%s", got)
	}
}

func gathered(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += fmt.Sprintf("{%s=%q}", l.GetName(), l.GetValue())
			}
			fmt.Fprintf(&text, "%s%s %v\n", f.GetName(), labels, m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	return text.String()
}

// A difference that the second count does not find was in transit.
func TestAuditorIgnoresTransientDifferences(t *testing.T) {
	s := open(t, 20)
	s.redis.Decr(t.Context(), keyspace.Shard(0).Stock("s"))
	reads := 0
	a := s.auditor(audit.AuditorConfig{
		RecheckDelay: time.Millisecond,
		Pause:        func(context.Context, string, string) error { t.Error("paused"); return nil },
		Generation: func(context.Context, keyspace.Shard) (int64, bool) { // read before and after the second count
			if reads++; reads == 1 {
				s.redis.Incr(context.Background(), keyspace.Shard(0).Stock("s"))
			}
			return 1, true
		},
	})
	if _, err := a.RunOnce(t.Context()); err != nil || reads != 2 {
		t.Fatalf("%v; the generation was read %d times, want 2: there was no second count", err, reads)
	}
}

// A sale is not paused for data that Redis lost and a rebuild restores.
func TestAuditorIgnoresRebuiltData(t *testing.T) {
	s := open(t, 20)
	s.redis.Decr(t.Context(), keyspace.Shard(0).Stock("s"))
	type state struct {
		generation int64
		verified   bool
	}
	var states []state
	pauses := 0
	registry := prometheus.NewRegistry()
	a := s.auditor(audit.AuditorConfig{
		RecheckDelay: time.Millisecond, Metrics: audit.NewMetrics(registry),
		Pause: func(context.Context, string, string) error { pauses++; return nil },
		Generation: func(context.Context, keyspace.Shard) (int64, bool) {
			now := states[0]
			states = states[1:]
			return now.generation, now.verified
		},
	})
	for name, seen := range map[string][]state{
		"rebuilt during the count": {{1, true}, {2, true}},
		"emptied during the count": {{1, true}, {0, false}},
		"emptied before the count": {{0, false}, {1, true}},
		"not verified":             {{0, false}, {0, false}},
	} {
		states = seen
		if _, err := a.RunOnce(t.Context()); !errors.Is(err, sale.ErrUnavailable) || pauses > 0 || len(states) > 0 {
			t.Errorf("%s: %v, %d pauses", name, err, pauses)
		}
	}
	if got := gathered(t, registry); !strings.Contains(got, `{result="unbalanced"} 0`) {
		t.Errorf("the audit counts as unbalanced:\n%s", got)
	}
	states = []state{{2, true}, {2, true}}
	if _, err := a.RunOnce(t.Context()); err != nil || pauses != 1 {
		t.Errorf("unchanged generation: %v, %d pauses", err, pauses)
	}
}

func TestAuditorAuditsAcquiredShardsAndSkipsClosedSales(t *testing.T) {
	s := open(t, 20)
	s.redis.Decr(t.Context(), keyspace.Shard(0).Stock("s"))
	acquired, pauses := false, 0
	a := s.auditor(audit.AuditorConfig{
		RecheckDelay: time.Millisecond, Acquire: func(context.Context, keyspace.Shard) bool { return acquired },
		Pause: func(context.Context, string, string) error { pauses++; return nil },
	})
	for want, prepare := range []func(){
		func() {},
		func() { acquired = true },
		func() { _, _ = s.store.SetSwitch(t.Context(), "s", sale.Paused) }, // already paused
		func() { _, _ = s.store.SetSwitch(t.Context(), "s", sale.Closed) },
	} {
		prepare()
		if _, err := a.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if pauses != min(want, 1) {
			t.Errorf("step %d: %d pauses", want, pauses)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := a.Run(ctx); err != nil {
		t.Error(err)
	}
	if _, err := a.RunOnce(ctx); err == nil || errors.Is(err, sale.ErrNotFound) {
		t.Errorf("unavailable stores: %v", err)
	}
}

// A sale with a key of the wrong type does not end the audits of the others in its shard.
func TestAuditorAuditsTheOthersOfABrokenSale(t *testing.T) {
	s := open(t, 20)
	def, _, err := s.store.Sale(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "broken", "z"} {
		def.ID, def.Version = id, 1
		if _, err := s.store.CreateSale(t.Context(), def); err != nil {
			t.Fatal(err)
		}
		if err := s.stock.Load(t.Context(), def, s.store.OrdersOf); err != nil {
			t.Fatal(err)
		}
	}
	shard := keyspace.Shard(0)
	s.redis.Del(t.Context(), shard.Stock("broken"))
	s.redis.SAdd(t.Context(), shard.Stock("broken"), "a set")
	s.redis.Decr(t.Context(), shard.Stock("z"))
	var paused []string
	registry := prometheus.NewRegistry()
	a := s.auditor(audit.AuditorConfig{
		RecheckDelay: time.Millisecond, Metrics: audit.NewMetrics(registry),
		Pause: func(_ context.Context, id, _ string) error { paused = append(paused, id); return nil },
	})
	if _, err := a.RunOnce(t.Context()); err == nil {
		t.Error("the failure was hidden")
	}
	if !slices.Equal(paused, []string{"z"}) {
		t.Errorf("paused sales %v, want z", paused)
	}
	want := `
# HELP sluice_audits_total Audits of sales by this process: balanced, unbalanced, or failed (store unavailable).
# TYPE sluice_audits_total counter
sluice_audits_total{result="balanced"} 2
sluice_audits_total{result="failed"} 1
sluice_audits_total{result="unbalanced"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "sluice_audits_total"); err != nil {
		t.Error(err)
	}
}

// oneSale has the rows of a sale.
type oneSale struct{ audit.Rows }

func (oneSale) SaleSummaries(context.Context) ([]store.SaleSummary, error) {
	return []store.SaleSummary{{Sale: sale.Sale{ID: "s", Spread: 2}}}, nil
}

// A shard that does not respond does not delay the next audit of the others by more than its own wait.
func TestAuditorRestsAfterAuditsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var began []time.Time
		a, err := audit.NewAuditor(audit.AuditorConfig{
			Checker: audit.New(nil, oneSale{}), Space: keyspace.Space{Shards: 2}, Log: slog.New(slog.DiscardHandler),
			Acquire: func(context.Context, keyspace.Shard) bool {
				if began = append(began, time.Now()); len(began) == 4 {
					stop()
				}
				<-time.After(2 * time.Second)
				return false
			},
			Pause: func(context.Context, string, string) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
		if pause := began[2].Sub(began[1]); pause > 10*time.Second {
			t.Errorf("the next run began %s after a shard that did not respond", pause)
		}
	})
}

// unreadable fails to read the sales the first three times.
type unreadable struct {
	audit.Rows
	reads int
}

func (u *unreadable) SaleSummaries(context.Context) ([]store.SaleSummary, error) {
	if u.reads++; u.reads <= 3 {
		return nil, sale.ErrUnavailable
	}
	return nil, nil
}

// An outage is two lines in the log, and not one for each audit.
func TestAuditorLogsTheBeginningAndTheEndOfErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		a, err := audit.NewAuditor(audit.AuditorConfig{
			Checker: audit.New(nil, &unreadable{}), Space: keyspace.Space{Shards: 1},
			Log:     slog.New(slog.NewTextHandler(&log, nil)),
			Acquire: func(context.Context, keyspace.Shard) bool { return true },
			Pause:   func(context.Context, string, string) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN msg=\"auditing sales fails; retrying\"") ||
			!strings.Contains(lines[1], `level=INFO msg="auditing sales works again"`) {
			t.Errorf("logged\n%s", log.String())
		}
	})
}

// hanging is a database that hangs at the first reading of the sales.
type hanging struct {
	audit.Rows
	reads []time.Time
	end   context.CancelFunc // at the second reading
}

func (h *hanging) SaleSummaries(context.Context) ([]store.SaleSummary, error) {
	if h.reads = append(h.reads, time.Now()); len(h.reads) == 2 {
		h.end()
		return nil, nil
	}
	<-time.After(20 * time.Second)
	return nil, sale.ErrUnavailable
}

// The wait for a store that does not respond is no audit, and the next one is soon.
func TestAuditorRetriesSoonAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		database := &hanging{end: stop}
		a, err := audit.NewAuditor(audit.AuditorConfig{
			Checker: audit.New(nil, database), Space: keyspace.Space{Shards: 1}, Log: slog.New(slog.DiscardHandler),
			Acquire: func(context.Context, keyspace.Shard) bool { return true },
			Pause:   func(context.Context, string, string) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := database.reads[1].Sub(database.reads[0]); took > time.Minute {
			t.Errorf("the next audit began %s after one that waited 20 s for the database", took)
		}
	})
}
