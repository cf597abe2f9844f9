package admission

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

// hasty is a client whose calls wait for a minute, unless their own deadline ends them: where one takes too long, no
// slow machine is to blame.
func hasty(o *redis.Options) {
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Minute, time.Minute, time.Minute
}

const tooLong = 20 * time.Second

// A Redis that is there and says nothing: whoever asks hears "unavailable" when he no longer wants to wait, also where
// order numbers have run out.
func TestAStalledRedisHoldsNobodyPastHisDeadline(t *testing.T) {
	r := testenv.StartRedis(t)
	client, err := redisconn.Open(r.URL, hasty)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := NewStock(StockConfig{Client: client}).Load(t.Context(), onSale("shoe", 10, 1), none); err != nil {
		t.Fatal(err)
	}
	admit := func(a *Admitter, wait time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		_, err := a.Admit(ctx, Request{SaleID: "shoe", Buyer: "ann", Key: "k", KeyTTL: time.Minute, Fingerprint: "f"})
		return err
	}
	newcomer := func() *Admitter {
		a := newAdmitter(client, client)
		a.cfg.IDs.limit = time.Minute
		a.groups.timeout = time.Minute
		return a
	}
	numbered := newcomer()
	if _, err := numbered.cfg.IDs.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Pause()
	defer r.Resume()
	for name, a := range map[string]*Admitter{"with order numbers in hand": numbered, "without": newcomer()} {
		begin := time.Now()
		err := admit(a, 200*time.Millisecond)
		if took := time.Since(begin); !errors.Is(err, sale.ErrUnavailable) || took > tooLong {
			t.Errorf("%s: %v after %s, want unavailable after 200ms", name, err, took)
		}
	}
	r.Resume()
	for _, a := range []*Admitter{numbered, newcomer()} {
		testenv.Eventually(t, 20*time.Second, "purchases go on", func() bool { return admit(a, time.Second) == nil })
	}
}
