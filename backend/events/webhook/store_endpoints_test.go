package webhook

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

func TestEndpointIsAddedChangedAndRemoved(t *testing.T) {
	onEngines(t, webhookEndpoints)
}

func webhookEndpoints(t *testing.T, e *env) {
	made := e.endpoint(t, "a", true)
	if made.State != EndpointActive || made.CreatedBy != "eve" || made.CreatedAt.IsZero() || !made.Strict ||
		made.Secret != "whsec_a" || len(made.OldSecrets) != 0 || len(made.Types) != 0 {
		t.Errorf("made: %+v", made)
	}
	if _, err := e.AddEndpoint(e.ctx, Endpoint{ID: "a", URL: "x"}); !errors.Is(err, sale.ErrExists) {
		t.Errorf("a used id: %v", err)
	}
	changed, err := e.ChangeEndpoint(e.ctx, "a", "webhook.change", func(p *Endpoint) error {
		p.URL, p.Types, p.Sales, p.State, p.Reason = "https://new.example/", []string{
			"order.paid",
			"order.created",
		}, []string{
			"x",
			"y",
		}, EndpointPaused, "maintenance"
		return nil
	})
	if err != nil || changed.URL != "https://new.example/" || len(changed.Types) != 2 || changed.Sales[1] != "y" ||
		changed.State != EndpointPaused || changed.Reason != "maintenance" || changed.Secret != "whsec_a" {
		t.Errorf("changed: %+v, %v", changed, err)
	}
	errRejected := errors.New("no")
	reject := func(p *Endpoint) error { p.URL = "bad"; return errRejected }
	if _, err := e.ChangeEndpoint(e.ctx, "a", "webhook.change", reject); !errors.Is(err, errRejected) {
		t.Errorf("rejected change: %v", err)
	}
	if err := e.RotateSecret(e.ctx, "a", "whsec_2", time.Hour); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Show(e.ctx, "a"); err != nil || got.URL != "https://new.example/" || got.Secret != "whsec_2" ||
		!slices.Equal(got.OldSecrets, []string{"whsec_a"}) || time.Until(got.OldUntil) < 50*time.Minute {
		t.Errorf("rotated: %+v, %v", got, err)
	}
	if err := e.RotateSecret(e.ctx, "a", "whsec_3", 0); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Show(e.ctx, "a"); err != nil || got.Secret != "whsec_3" || len(got.OldSecrets) != 0 ||
		!got.OldUntil.IsZero() {
		t.Errorf("rotated without overlap: %+v, %v", got, err)
	}
	e.endpoint(t, "b", false)
	if all, err := e.Endpoints(e.ctx); err != nil || len(all) != 2 || all[0].ID != "a" || all[1].Strict {
		t.Errorf("%+v, %v", all, err)
	}
	for range 2 { // the first response may be lost
		if err := e.Remove(e.ctx, "a"); err != nil {
			t.Error(err)
		}
	}
	err = e.Remove(e.ctx, "none")
	_, err2 := e.Show(e.ctx, "a")
	_, err3 := e.ChangeEndpoint(e.ctx, "a", "webhook.change", func(*Endpoint) error { return nil })
	_, _, err4 := e.LeaseDeliveries(e.ctx, "a", 1, time.Second, 1)
	_, err5 := e.RecordResults(e.ctx, "a", nil)
	_, err6 := e.RedeliverFailed(e.ctx, "a", time.Time{}, 1)
	err7, err8 := e.RotateSecret(e.ctx, "a", "s", 0), e.Redeliver(e.ctx, "a", "nothing")
	for i, err := range []error{err, err2, err3, err4, err5, err6, err7, err8} {
		if !errors.Is(err, ErrNoEndpoint) {
			t.Errorf("call %d on an unknown endpoint: %v", i, err)
		}
	}
	var log []string
	lines, err := e.Log(e.ctx, store.LogQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		log = append(log, l.Action+" "+l.Target)
		if strings.Contains(l.Detail, "whsec_") || strings.Contains(l.Detail, "example") {
			t.Errorf("the action log contains a secret or a URL: %+v", l)
		}
	}
	if got, want := strings.Join(log, ", "),
		"webhook.remove a, webhook.add b, webhook.rotate a, webhook.rotate a, webhook.change a, webhook.add a"; got != want {
		t.Errorf("action log: %s\nwant %s", got, want)
	}
	for i := range maxEndpoints {
		if _, err = e.AddEndpoint(e.ctx, Endpoint{ID: fmt.Sprint(i), URL: "https://x.example"}); err != nil {
			break
		}
	}
	if !errors.Is(err, errManyEndpoints) || !errors.Is(err, sale.ErrConflict) {
		t.Errorf("more than maxEndpoints: %v", err)
	}
}

// An admin gets the reason of each conflict.
func TestRefusedChangesHaveAReason(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		admin := newAdmin(t, e.Store)
		e.endpoint(t, "a", false)
		e.add(t, "a", "-1:1")
		gone := givenUp(e.wantLeased(t, "a", "-1:1")[0])
		gone.Gone = true
		e.results(t, gone)
		_, pause := admin.Pause(e.ctx, "a")
		_, ping := admin.Ping(e.ctx, "a")
		_, failed := e.RedeliverFailed(e.ctx, "a", time.Time{}, 9)
		for what, err := range map[string]error{
			"pause": pause, "ping": ping, "redeliver": e.Redeliver(e.ctx, "a", "-1:1_a"), "redeliver failed": failed,
		} {
			refused, ok := errors.AsType[*store.RefusedError](err)
			if want := "The endpoint is disabled. Resume it first."; !ok || refused.Detail != want {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
		var rotate, add error
		for i := range maxEndpoints {
			rotate = errors.Join(rotate, e.RotateSecret(e.ctx, "a", NewSecret(), time.Hour))
			_, err := e.AddEndpoint(e.ctx, Endpoint{ID: fmt.Sprint(i), URL: "https://x.example"})
			add = errors.Join(add, err)
		}
		for err, want := range map[error]string{
			rotate: "8 old secrets still sign. Rotate when one has expired, or with a keep of 0.",
			add:    "There are 100 endpoints already. Remove one first.",
		} {
			if refused, ok := errors.AsType[*store.RefusedError](err); !ok || refused.Detail != want {
				t.Errorf("%v, want %q", err, want)
			}
		}
	})
}

func TestConcurrentAddsKeepTheMaximum(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		for i := range maxEndpoints - 1 {
			e.endpoint(t, fmt.Sprint("ep", i), false)
		}
		var added, rejected atomic.Int64
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				switch _, err := e.AddEndpoint(e.ctx, Endpoint{ID: fmt.Sprint(i), URL: "https://x.example"}); {
				case err == nil:
					added.Add(1)
				case errors.Is(err, errManyEndpoints):
					rejected.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if list, err := e.Endpoints(e.ctx); err != nil || len(list) != maxEndpoints || added.Load() != 1 ||
			rejected.Load() != 7 {
			t.Errorf("%d endpoints, %v; %d were added and %d rejected", len(list), err, added.Load(), rejected.Load())
		}
	})
}

func TestFailingEndpointIsHeldAndProbed(t *testing.T) {
	onEngines(t, webhookFailing)
}

func webhookFailing(t *testing.T, e *env) {
	e.endpoint(t, "a", false)
	var ids []string
	for i := range breakAfter + 12 {
		ids = append(ids, fmt.Sprintf("%d:%d", i+1, i+1))
	}
	e.add(t, "a", ids...)
	leased := e.lease(t, "a", math.MaxInt64, time.Minute, breakAfter)
	var bad, late []Result
	for _, d := range e.lease(t, "a", math.MaxInt64, time.Minute, 10) {
		late = append(late, failed(d, time.Hour))
	}
	for _, d := range leased {
		bad = append(bad, failed(d, time.Hour))
	}
	e.results(t, bad[1:]...)
	if due, err := e.DueEndpoints(e.ctx, nil); err != nil || len(due) != 1 {
		t.Fatalf("one failure below breakAfter: %v, %v", due, err)
	}
	e.results(t, bad[0])
	e.results(t, late...) // of requests that were in progress when the hold began
	got, err := e.Show(e.ctx, "a")
	if err != nil || got.Failures != breakAfter || time.Until(got.HoldUntil) > 6*time.Second ||
		got.FailingSince.IsZero() || got.HoldUntil.IsZero() || got.LastError != bad[0].Error || got.LastErrorAt.IsZero() {
		t.Fatalf("%+v, %v", got, err)
	}
	e.fail(t, "a", 2*breakAfter, 4*time.Minute) // longer than the rest of the test
	e.wantLeased(t, "a")
	if due, err := e.DueEndpoints(e.ctx, nil); err != nil || len(due) != 0 {
		t.Errorf("due endpoints during a hold: %v, %v", due, err)
	}
	e.add(t, "a", "-1:0") // sent during a hold too
	if due, err := e.DueEndpoints(e.ctx, nil); err != nil || len(due) != 1 {
		t.Errorf("due endpoints with a ping: %v, %v", due, err)
	}
	e.results(t, delivered(e.wantLeased(t, "a", "-1:0")[0]))
	if got, err = e.Show(e.ctx, "a"); err != nil || got.Failures != 0 || !got.FailingSince.IsZero() ||
		!got.HoldUntil.IsZero() || got.LastError != bad[0].Error {
		t.Errorf("after a success: %+v, %v", got, err)
	}
	r := failed(e.lease(t, "a", math.MaxInt64, time.Minute, 1)[0], time.Hour)
	r.Hold, r.Error = time.Hour, "HTTP 429"
	e.results(t, r)
	if got, err = e.Show(e.ctx, "a"); err != nil || got.Failures != 1 || time.Until(got.HoldUntil) < 50*time.Minute ||
		!got.FailingSince.IsZero() || got.LastError != "HTTP 429" {
		t.Errorf("after Retry-After: %+v, %v", got, err)
	}
	e.wantLeased(t, "a")
	for _, s := range []EndpointState{EndpointPaused, EndpointActive} {
		if _, err := e.ChangeEndpoint(e.ctx, "a", "webhook.switch",
			func(p *Endpoint) error { p.State = s; p.Revision++; return nil }); err != nil {
			t.Fatal(err)
		}
		if n := len(e.lease(t, "a", math.MaxInt64, time.Minute, 9)); (n > 0) != (s == EndpointActive) {
			t.Errorf("%s: %d leased", s, n)
		}
	}
	list, err := e.Deliveries(e.ctx, DeliveryQuery{EndpointID: "a", Limit: 1})
	if err != nil || len(list) != 1 {
		t.Fatal(err)
	}
	e.add(t, "a", "-1:1")
	gone := givenUp(e.wantLeased(t, "a", "-1:1")[0])
	gone.Gone = true
	e.results(t, gone)
	if got, err = e.Show(e.ctx, "a"); err != nil || got.State != EndpointDisabled || got.Reason == "" {
		t.Errorf("after 410 Gone: %+v, %v", got, err)
	}
	if err := e.Redeliver(e.ctx, "a", "-1:1_a"); !errors.Is(err, sale.ErrConflict) {
		t.Errorf("redeliver to a disabled endpoint: %v", err)
	}
	if _, err := e.RedeliverFailed(e.ctx, "a", time.Time{}, 9); !errors.Is(err, sale.ErrConflict) {
		t.Errorf("redeliver all to a disabled endpoint: %v", err)
	}
	e.wantLeased(t, "a")
}

func TestOldSecretsSignUntilTheirTimeAfterAnotherRotation(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.endpoint(t, "a", true)
		rotate := func(secret string, keep time.Duration) error { return e.RotateSecret(e.ctx, "a", secret, keep) }
		if err := errors.Join(rotate("whsec_b", time.Hour), rotate("whsec_c", time.Minute)); err != nil {
			t.Fatal(err)
		}
		got, err := e.Show(e.ctx, "a")
		slices.Sort(got.OldSecrets)
		if err != nil || got.Secret != "whsec_c" || !slices.Equal(got.OldSecrets, []string{"whsec_a", "whsec_b"}) ||
			time.Until(got.OldUntil) < 50*time.Minute {
			t.Errorf("rotated twice: %+v, %v", got, err)
		}
		for i := range maxOldSecrets - 2 {
			if err := rotate(fmt.Sprint("whsec_", i), time.Millisecond+time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if err := rotate("whsec_d", time.Hour); !errors.Is(err, errManySecrets) {
			t.Errorf("rotated too often: %v", err)
		}
		if err := rotate("whsec_e", 0); err != nil {
			t.Fatal(err)
		}
		if got, err := e.Show(e.ctx, "a"); err != nil || got.Secret != "whsec_e" || len(got.OldSecrets) != 0 {
			t.Errorf("rotated with keep 0: %+v, %v", got, err)
		}
	})
}

// A removed endpoint leaves no secret to another one with its id.
func TestRemovedEndpointLeavesNoSecrets(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.endpoint(t, "shop", false)
		if err := e.RotateSecret(e.ctx, "shop", "whsec_next", time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := e.Remove(e.ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		if again := e.endpoint(t, "shop", false); len(again.OldSecrets) > 0 {
			t.Errorf("the secrets %q of a removed endpoint sign", again.OldSecrets)
		}
	})
}

// An admin changes the URL while a request to the old one is in progress.
func TestResultOfTheOldURLDoesNotChangeTheEndpoint(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.endpoint(t, "a", false)
		e.add(t, "a", "1:1", "2:2")
		leased := e.wantLeased(t, "a", "1:1", "2:2")
		changed, err := e.ChangeEndpoint(e.ctx, "a", "webhook.edit", func(v *Endpoint) error {
			v.URL += "/new"
			v.Revision++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		gone := failed(leased[0], time.Minute)
		gone.Gone, gone.Hold = true, time.Hour
		e.results(t, gone, givenUp(leased[1]))
		if got, err := e.Show(e.ctx, "a"); err != nil || got.State != EndpointActive || got.Failures != 0 ||
			!got.FailingSince.IsZero() || !got.HoldUntil.IsZero() || got.URL != changed.URL {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// The response of a request that began before an admin resumed the endpoint, with the same URL.
func TestResultOfTheTimeBeforeAResumeDoesNotChangeTheEndpoint(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		admin := newAdmin(t, e.Store)
		e.endpoint(t, "a", false)
		e.add(t, "a", "1:1", "2:2", "3:3")
		leased := e.wantLeased(t, "a", "1:1", "2:2", "3:3")
		gone := givenUp(leased[0])
		gone.Gone = true
		e.results(t, gone)
		if _, err := admin.Resume(e.ctx, "a"); err != nil {
			t.Fatal(err)
		}
		gone.Delivery = leased[1]
		e.results(t, gone, failed(leased[2], time.Minute))
		if got, err := e.Show(e.ctx, "a"); err != nil || got.State != EndpointActive || got.Failures != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// Several requests are in progress when an endpoint requests a delay. Their results, which arrive later, do not end it.
func TestLaterResultsDoNotEndARequestedDelay(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.endpoint(t, "a", false)
		e.add(t, "a", "1:1", "2:2", "3:3", "4:4", "-1:0")
		leased := e.wantLeased(t, "a", "-1:0", "1:1", "2:2", "3:3", "4:4")
		busy := failed(leased[1], time.Hour)
		busy.Hold = 30 * time.Minute
		e.results(t, busy)
		for what, r := range map[string]Result{
			"a failed request": failed(leased[2], time.Hour), "a delivery": delivered(leased[3]), "a ping": delivered(leased[0]),
		} {
			e.results(t, r)
			if got, err := e.Show(e.ctx, "a"); err != nil || time.Until(got.HoldUntil) < 20*time.Minute {
				t.Errorf("after %s: held until %s, %v", what, got.HoldUntil, err)
			}
		}
		e.add(t, "a", "5:5")
		e.wantLeased(t, "a")
	})
}

// An endpoint requests a delay, rejects so many requests that it counts as failing, and accepts one. The success ends
// the hold for the failures, and not the requested delay.
func TestASuccessAfterManyRejectionsDoesNotEndARequestedDelay(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.endpoint(t, "a", false)
		var ids []string
		for i := range breakAfter + 2 {
			ids = append(ids, fmt.Sprintf("%d:%d", i+1, i+1))
		}
		e.add(t, "a", ids...)
		leased := e.lease(t, "a", math.MaxInt64, time.Minute, len(ids))
		var busy []Result
		for _, d := range leased[2:] {
			r := failed(d, time.Hour)
			r.Hold = 30 * time.Minute
			busy = append(busy, r)
		}
		e.results(t, busy...)
		e.results(t, failed(leased[0], time.Hour))
		e.results(t, delivered(leased[1]))
		if got, err := e.Show(e.ctx, "a"); err != nil || got.Failures != 0 || time.Until(got.HoldUntil) < 20*time.Minute {
			t.Errorf("%d failures, held until %s, %v", got.Failures, got.HoldUntil, err)
		}
	})
}

// A probe holds an endpoint until the result of the probe is recorded, even if an earlier request succeeds meanwhile.
func TestResultOfAProbeEndsItsHold(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.endpoint(t, "a", false)
		e.add(t, "a", "1:1", "2:2")
		late := e.lease(t, "a", math.MaxInt64, time.Minute, 1)[0]
		e.fail(t, "a", breakAfter, 0)
		probe := e.lease(t, "a", math.MaxInt64, time.Hour, 9)
		if len(probe) != 1 || probe[0].Probe == 0 {
			t.Fatalf("leased %+v, want a probe", probe)
		}
		e.results(t, delivered(late))
		e.results(t, delivered(probe[0]))
		if got, err := e.Show(e.ctx, "a"); err != nil || got.Failures != 0 || !got.HoldUntil.IsZero() {
			t.Errorf("%d failures, held until %s, %v", got.Failures, got.HoldUntil, err)
		}
	})
}

// A request that was in progress before a probe is rejected with a delay while the probe is in progress.
func TestResultOfAProbeDoesNotEndARequestedDelay(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.endpoint(t, "a", false)
		e.add(t, "a", "1:1", "2:2")
		busy := failed(e.lease(t, "a", math.MaxInt64, time.Minute, 1)[0], time.Hour)
		busy.Hold = 30 * time.Minute
		e.fail(t, "a", breakAfter, 0)
		probe := e.lease(t, "a", math.MaxInt64, time.Minute, 9)
		if len(probe) != 1 {
			t.Fatalf("leased %+v, want a probe", probe)
		}
		e.results(t, busy)
		e.results(t, delivered(probe[0]))
		if got, err := e.Show(e.ctx, "a"); err != nil || got.Failures != 0 || time.Until(got.HoldUntil) < 20*time.Minute {
			t.Errorf("%d failures, held until %s, %v", got.Failures, got.HoldUntil, err)
		}
	})
}

// fail sets the failures in a row of an endpoint and holds it.
func (e *env) fail(t *testing.T, endpoint string, failures int64, hold time.Duration) {
	t.Helper()
	if err := e.Store.db.Update(e.ctx, "fail", func(ctx context.Context, c store.Conn) error {
		const set = "UPDATE webhook_endpoints SET failures = $2 WHERE id = $1"
		if _, err := c.Exec(ctx, set, endpoint, failures); err != nil {
			return err
		}
		return holdEndpoint(ctx, c, endpoint, hold)
	}); err != nil {
		t.Fatal(err)
	}
}

func TestResumeEndsAHold(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		admin := newAdmin(t, e.Store)
		e.endpoint(t, "a", false)
		e.add(t, "a", "1:1", "2:2")
		r := failed(e.lease(t, "a", math.MaxInt64, time.Minute, 1)[0], time.Hour)
		r.Hold = time.Hour
		e.results(t, r)
		e.wantLeased(t, "a")
		got, err := admin.Resume(e.ctx, "a")
		if err != nil || !got.HoldUntil.IsZero() || got.Failures != 0 {
			t.Errorf("%+v, %v", got, err)
		}
		e.wantLeased(t, "a", "2:2")
	})
}

// The reply of the database is lost, so the sender records the results again.
func TestResultsAreRecordedOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.endpoint(t, "a", false)
		e.add(t, "a", "1:1")
		r := failed(e.wantLeased(t, "a", "1:1")[0], time.Hour)
		for range 2 {
			e.results(t, r)
		}
		d, log, err := e.Delivery(e.ctx, "a", "1:1_a")
		if err != nil || d.Attempts != 1 || len(log) != 1 {
			t.Errorf("%d attempts, %d in the log, %v; want 1", d.Attempts, len(log), err)
		}
		if got, err := e.Show(e.ctx, "a"); err != nil || got.Failures != 1 {
			t.Errorf("%d failures, %v; want 1", got.Failures, err)
		}
	})
}

// pause pauses an endpoint, as Admin.Pause does.
func (e *env) pause(endpoint string) (Endpoint, error) {
	return e.ChangeEndpoint(e.ctx, endpoint, "webhook.pause", func(p *Endpoint) error {
		p.State = EndpointPaused
		return nil
	})
}

// Neither the response of a change nor a list counts the whole backlog, which may take longer than the timeout. The
// gauges do.
func TestCountsOfABacklogAreBounded(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.endpoint(t, "a", false)
		e.add(t, "a", "1:1", "2:2", "3:3")
		for _, d := range e.wantLeased(t, "a", "1:1", "2:2", "3:3")[1:] {
			e.results(t, givenUp(d))
		}
		due := map[bool]string{true: "now()", false: "1000"}[strings.HasPrefix(e.url, "postgres")]
		storetest.Exec(t, e.url, fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO webhook_deliveries (id, endpoint_id, position, sequence, type, body, state, due_at)
			SELECT 'ev_' || state || '_' || i, 'a', i, i, 'order.created', '{}', state, %s FROM n, (SELECT 1 AS state
				UNION ALL SELECT 3) AS states`, MaxCounted, due))
		paused, err := e.pause("a")
		shown, err2 := e.Show(e.ctx, "a")
		all, err3 := NewAdmin(e.Store, nil).List(e.ctx)
		if err := errors.Join(err, err2, err3); err != nil || len(all) != 1 {
			t.Fatalf("%d endpoints, %v", len(all), err)
		}
		for what, got := range map[string]Endpoint{"changed": paused, "shown": shown, "listed": all[0]} {
			if got.State != EndpointPaused || got.Waiting != MaxCounted || got.Failed != MaxCounted || got.Oldest <= 0 {
				t.Errorf("%s: %+v; want %d of each", what, got, MaxCounted)
			}
		}
		if got := e.gauges(t); got["waiting a"] != MaxCounted+1 || got["failed a"] != MaxCounted+2 {
			t.Errorf("gauges: %v; want waiting %d and failed %d", got, MaxCounted+1, MaxCounted+2)
		}
	})
}

// A change is not stored if its response cannot be made.
func TestFailedCountStoresNoChange(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.endpoint(t, "a", false)
		storetest.Exec(t, e.url, "ALTER TABLE webhook_deliveries RENAME TO unreadable")
		if _, err := e.pause("a"); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("while the deliveries cannot be counted: %v", err)
		}
		storetest.Exec(t, e.url, "ALTER TABLE unreadable RENAME TO webhook_deliveries")
		if now, err := e.Show(e.ctx, "a"); err != nil || now.State != EndpointActive {
			t.Errorf("%+v, %v; want an active endpoint", now, err)
		}
	})
}
