package admission

import (
	"context"
	"errors"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/test/testenv"
)

const tooLong = 20 * time.Second

// Redis accepts connections and does not respond. Admit returns at the deadline of its context, also if it must lease
// order numbers.
func TestAdmitReturnsAtItsDeadlineWhenRedisStalls(t *testing.T) {
	r := testenv.StartRedis(t)
	client := testenv.OpenPatient(t, r.URL)
	if err := NewStock(StockConfig{Client: client}).Load(t.Context(), onSale("shoe", 10, 1), none); err != nil {
		t.Fatal(err)
	}
	admit := func(a *Admitter, wait time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		_, err := a.Admit(ctx, Request{SaleID: "shoe", Buyer: "ann", Key: "k", KeyTTL: time.Minute, Fingerprint: "f"})
		return err
	}
	fresh := func() *Admitter {
		a := newAdmitter(client, client)
		a.cfg.IDs[0].limit = time.Minute
		a.groups.timeout = time.Minute
		return a
	}
	leased := fresh()
	if _, err := leased.cfg.IDs.Next(t.Context(), shard); err != nil {
		t.Fatal(err)
	}
	r.Pause()
	defer r.Resume()
	for name, a := range map[string]*Admitter{"with leased order numbers": leased, "without": fresh()} {
		begin := time.Now()
		err := admit(a, 200*time.Millisecond)
		if took := time.Since(begin); !errors.Is(err, sale.ErrUnavailable) || took > tooLong {
			t.Errorf("%s: %v after %s, want unavailable after 200ms", name, err, took)
		}
	}
	r.Resume()
	for _, a := range []*Admitter{leased, fresh()} {
		testenv.Eventually(
			t, 20*time.Second, "a purchase after Redis resumes", func() bool { return admit(a, time.Second) == nil },
		)
	}
}
