package audit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/backend/audit"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

func (s *shop) auditor(cfg audit.AuditorConfig) *audit.Auditor {
	cfg.Log = slog.New(slog.DiscardHandler)
	if cfg.Acquire == nil {
		cfg.Acquire = func(context.Context, keyspace.Shard) bool { return true }
	}
	if cfg.Pause == nil {
		cfg.Pause = func(context.Context, string, string) error { return nil }
	}
	cfg.Checker = s.ledger
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
	if err := a.RunOnce(t.Context()); err != nil || len(paused) > 0 {
		t.Fatalf("a sale that balances: %v, paused %v", err, paused)
	}
	stolen, err := keyspace.DecodeMessage(s.redis.RPop(t.Context(), keyspace.Shard(0).Ready()).Val())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if why := paused["s"]; !strings.Contains(why, "add up to 19") || !strings.Contains(why, stolen.ID.String()) {
		t.Errorf("paused because of %q", why)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("the metrics are badly named: %v %v", problems, err)
	}
	for _, labels := range []string{`sluice_audits_total{result="unbalanced"} 1`, `sluice_audit_balanced{sale="s"} 0`} {
		if got := gathered(t, registry); !strings.Contains(got, labels) {
			t.Errorf("the metrics lack %s:\n%s", labels, got)
		}
	}
	if err := s.redis.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.RunOnce(t.Context()); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("without Redis: %v", err)
	}
	if got := gathered(t, registry); !strings.Contains(got, `sluice_audits_total{result="failed"} 1`) {
		t.Errorf("an audit that could not be made is not counted:\n%s", got)
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

// What is mended before the second look was on its way, and no reason to stop a sale.
func TestAuditorForgivesWhatPasses(t *testing.T) {
	s := open(t, 20)
	s.redis.Decr(t.Context(), keyspace.Shard(0).Stock("s"))
	looks := 0
	a := s.auditor(audit.AuditorConfig{
		RecheckDelay: time.Millisecond,
		Pause:        func(context.Context, string, string) error { t.Error("paused"); return nil },
		Generation: func(context.Context) (int64, bool) { // is asked for around the second look alone
			if looks++; looks == 1 {
				s.redis.Incr(context.Background(), keyspace.Shard(0).Stock("s"))
			}
			return 1, true
		},
	})
	if err := a.RunOnce(t.Context()); err != nil || looks != 2 {
		t.Fatalf("%v; the generation was asked for %d times, want 2: it has not looked again", err, looks)
	}
}

// What Redis lost is not where it was, and no reason to stop a sale: a rebuild brings it back.
func TestAuditorForgivesWhatIsRebuilt(t *testing.T) {
	s := open(t, 20)
	s.redis.Decr(t.Context(), keyspace.Shard(0).Stock("s"))
	type sight struct {
		generation int64
		verified   bool
	}
	var sights []sight
	pauses := 0
	registry := prometheus.NewRegistry()
	a := s.auditor(audit.AuditorConfig{
		RecheckDelay: time.Millisecond, Metrics: audit.NewMetrics(registry),
		Pause: func(context.Context, string, string) error { pauses++; return nil },
		Generation: func(context.Context) (int64, bool) {
			now := sights[0]
			sights = sights[1:]
			return now.generation, now.verified
		},
	})
	for name, seen := range map[string][]sight{
		"rebuilt meanwhile":         {{1, true}, {2, true}},
		"emptied meanwhile":         {{1, true}, {0, false}},
		"emptied before":            {{0, false}, {1, true}},
		"emptied, and is not there": {{0, false}, {0, false}},
	} {
		sights = seen
		if err := a.RunOnce(t.Context()); !errors.Is(err, sale.ErrUnavailable) || pauses > 0 || len(sights) > 0 {
			t.Errorf("%s: %v, %d pauses", name, err, pauses)
		}
	}
	if got := gathered(t, registry); !strings.Contains(got, `{result="unbalanced"} 0`) {
		t.Errorf("counted as unbalanced:\n%s", got)
	}
	sights = []sight{{2, true}, {2, true}}
	if err := a.RunOnce(t.Context()); err != nil || pauses != 1 {
		t.Errorf("in one generation: %v, %d pauses", err, pauses)
	}
}

func TestAuditorWaitsForItsTurnAndLeavesTheClosedAlone(t *testing.T) {
	s := open(t, 20)
	s.redis.Decr(t.Context(), keyspace.Shard(0).Stock("s"))
	turn, pauses := false, 0
	a := s.auditor(audit.AuditorConfig{
		RecheckDelay: time.Millisecond, Acquire: func(context.Context, keyspace.Shard) bool { return turn },
		Pause: func(context.Context, string, string) error { pauses++; return nil },
	})
	for want, prepare := range []func(){
		func() {},
		func() { turn = true },
		func() { _, _ = s.store.SetSwitch(t.Context(), "s", sale.Paused) }, // already
		func() { _, _ = s.store.SetSwitch(t.Context(), "s", sale.Closed) },
	} {
		prepare()
		if err := a.RunOnce(t.Context()); err != nil {
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
	if err := a.RunOnce(ctx); err == nil || errors.Is(err, sale.ErrNotFound) {
		t.Errorf("with nobody to ask: %v", err)
	}
}
