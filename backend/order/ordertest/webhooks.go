package ordertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/order"
	"sluice/backend/sale"
	"sluice/internal/testenv"
)

func (e *env) endpoint(t *testing.T, id string, strict bool) order.Endpoint {
	t.Helper()
	made, err := e.AddEndpoint(order.WithActor(e.ctx, "eve"), order.Endpoint{ID: id, URL: "https://shop.example/" + id, Title: "T", Secret: "whsec_" + id, Strict: strict})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// tell adds deliveries to an endpoint, one for each "lane:position".
func (e *env) tell(t *testing.T, endpoint string, lanesAndPositions ...string) {
	t.Helper()
	var all []order.Delivery
	for _, text := range lanesAndPositions {
		d := order.Delivery{EndpointID: endpoint, ID: text + "_" + endpoint, Type: "order.created", Body: `{"lane":"` + text + `"}`}
		if _, err := fmt.Sscanf(text, "%d:%d", &d.Lane, &d.Position); err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	if _, err := e.AddDeliveries(e.ctx, all); err != nil {
		t.Fatal(err)
	}
}

func (e *env) lease(t *testing.T, endpoint string, upTo int64, lease time.Duration, limit int) []order.Delivery {
	t.Helper()
	_, leased, err := e.LeaseDeliveries(e.ctx, endpoint, upTo, lease, limit)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(leased, func(a, b order.Delivery) int { return strings.Compare(a.ID, b.ID) })
	return leased
}

func (e *env) wantLeased(t *testing.T, endpoint string, want ...string) []order.Delivery {
	t.Helper()
	leased := e.lease(t, endpoint, order.Anywhere, time.Minute, 100)
	var got []string
	for _, d := range leased {
		id, _, _ := strings.Cut(d.ID, "_")
		got = append(got, id)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("leased %v, want %v", got, want)
	}
	return leased
}

func (e *env) results(t *testing.T, results ...order.Result) (lost int) {
	t.Helper()
	lost, err := e.RecordResults(e.ctx, results[0].Delivery.EndpointID, results)
	if err != nil {
		t.Fatal(err)
	}
	return lost
}

func delivered(d order.Delivery) order.Result {
	return order.Result{Delivery: d, State: order.DeliveryDelivered, Status: 204, Took: 7 * time.Millisecond}
}

func failed(d order.Delivery, again time.Duration) order.Result {
	return order.Result{Delivery: d, State: order.DeliveryWaiting, Wait: again, Status: 500, Error: "it answered 500", Answer: "oh\x00 \xffno"}
}

func givenUp(d order.Delivery) order.Result {
	return order.Result{Delivery: d, State: order.DeliveryFailed, Error: "no answer"}
}

func webhookEndpoints(t *testing.T, e *env) {
	made := e.endpoint(t, "a", true)
	if made.State != order.EndpointActive || made.CreatedBy != "eve" || made.CreatedAt.IsZero() || !made.Strict || made.Secret != "whsec_a" || made.OldSecret != "" || len(made.Types) != 0 {
		t.Errorf("made: %+v", made)
	}
	if _, err := e.AddEndpoint(e.ctx, order.Endpoint{ID: "a", URL: "x"}); !errors.Is(err, sale.ErrExists) {
		t.Errorf("a second one: %v", err)
	}
	changed, err := e.ChangeEndpoint(e.ctx, "a", "webhook.change", func(p *order.Endpoint) error {
		p.URL, p.Types, p.Sales, p.State, p.Reason = "https://new.example/", []string{"order.paid", "order.created"}, []string{"x", "y"}, order.EndpointPaused, "night"
		return nil
	})
	if err != nil || changed.URL != "https://new.example/" || len(changed.Types) != 2 || changed.Sales[1] != "y" || changed.State != order.EndpointPaused || changed.Reason != "night" || changed.Secret != "whsec_a" {
		t.Errorf("changed: %+v, %v", changed, err)
	}
	refuse := errors.New("no")
	if _, err := e.ChangeEndpoint(e.ctx, "a", "webhook.change", func(p *order.Endpoint) error { p.URL = "bad"; return refuse }); !errors.Is(err, refuse) {
		t.Errorf("refused: %v", err)
	}
	if err := e.RotateSecret(e.ctx, "a", "whsec_2", time.Hour); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Endpoint(e.ctx, "a"); err != nil || got.URL != "https://new.example/" || got.Secret != "whsec_2" || got.OldSecret != "whsec_a" || time.Until(got.OldUntil) < 50*time.Minute {
		t.Errorf("rotated: %+v, %v", got, err)
	}
	if err := e.RotateSecret(e.ctx, "a", "whsec_3", 0); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Endpoint(e.ctx, "a"); err != nil || got.Secret != "whsec_3" || got.OldSecret != "" || !got.OldUntil.IsZero() {
		t.Errorf("rotated at once: %+v, %v", got, err)
	}
	e.endpoint(t, "b", false)
	if all, err := e.Endpoints(e.ctx, true); err != nil || len(all) != 2 || all[0].ID != "a" || all[1].Strict {
		t.Errorf("%+v, %v", all, err)
	}
	for range 2 {
		err = e.RemoveEndpoint(e.ctx, "a")
	}
	_, err2 := e.Endpoint(e.ctx, "a")
	_, err3 := e.ChangeEndpoint(e.ctx, "a", "webhook.change", func(*order.Endpoint) error { return nil })
	_, _, err4 := e.LeaseDeliveries(e.ctx, "a", 1, time.Second, 1)
	_, err5 := e.RecordResults(e.ctx, "a", nil)
	_, err6 := e.RedeliverFailed(e.ctx, "a", time.Time{}, 1)
	for i, err := range []error{err, err2, err3, err4, err5, err6, e.RotateSecret(e.ctx, "a", "s", 0), e.Redeliver(e.ctx, "nothing")} {
		if !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("%d: of what is not there: %v", i, err)
		}
	}
	var log []string
	lines, err := e.Log(e.ctx, order.LogQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		log = append(log, l.Action+" "+l.Target)
		if strings.Contains(l.Detail, "whsec_") || strings.Contains(l.Detail, "example") {
			t.Errorf("the desk log holds a secret or a URL: %+v", l)
		}
	}
	if got, want := strings.Join(log, ", "), "webhook.remove a, webhook.add b, webhook.rotate a, webhook.rotate a, webhook.change a, webhook.add a"; got != want {
		t.Errorf("desk log: %s\nwant %s", got, want)
	}
	for i := range order.MaxEndpoints {
		if _, err = e.AddEndpoint(e.ctx, order.Endpoint{ID: fmt.Sprint(i), URL: "https://x.example"}); err != nil {
			break
		}
	}
	if !errors.Is(err, order.ErrManyEndpoints) || !errors.Is(err, sale.ErrConflict) {
		t.Errorf("one more than may be: %v", err)
	}
}

func webhookLanes(t *testing.T, e *env) {
	e.endpoint(t, "a", false)
	e.endpoint(t, "b", false)
	e.tell(t, "a", "7:1", "8:2", "7:3", "9:4", "7:5")
	e.tell(t, "b", "7:1")
	e.tell(t, "a", "7:1", "8:2") // again
	if got := e.lease(t, "a", 0, time.Minute, 9); len(got) != 0 {
		t.Fatalf("above the position that is asked for: %+v", got)
	}
	leased := e.wantLeased(t, "a", "7:1", "8:2", "9:4")
	if d := leased[0]; d.Body != `{"lane":"7:1"}` || d.Type != "order.created" || d.Fence != 1 || d.Attempts != 0 || d.Lane != 7 || d.Position != 1 {
		t.Errorf("%+v", d)
	}
	e.wantLeased(t, "a") // the rest waits for them
	e.results(t, delivered(leased[0]), failed(leased[1], time.Hour))
	leased = e.wantLeased(t, "a", "7:3")
	e.results(t, givenUp(leased[0]))
	e.wantLeased(t, "a", "7:5")
	e.wantLeased(t, "b", "7:1")

	// What comes behind one that waits for its time waits as long; when that one goes early, both do.
	e.tell(t, "a", "8:6")
	e.wantLeased(t, "a")
	list, err := e.Deliveries(e.ctx, order.DeliveryQuery{EndpointID: "a", State: order.DeliveryWaiting})
	if err != nil || len(list) != 4 || list[0].ID != "8:6_a" || time.Until(list[0].DueAt) < 50*time.Minute || list[0].Leased || !list[1].Leased {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := e.Redeliver(e.ctx, "8:2_a"); err != nil {
		t.Fatal(err)
	}
	e.results(t, delivered(e.wantLeased(t, "a", "8:2")[0]))
	e.wantLeased(t, "a", "8:6")

	d, log, err := e.Delivery(e.ctx, "8:2_a")
	if err != nil || d.State != order.DeliveryDelivered || d.EndedAt.IsZero() || len(log) != 2 || log[0].Status != 500 || log[0].Answer != "oh \uFFFDno" || log[0].Error == "" || log[1].Status != 204 || log[1].Took != 7*time.Millisecond || log[1].Number != 2 {
		t.Errorf("%+v, %+v, %v", d, log, err)
	}
	if got, err := e.Endpoint(e.ctx, "a"); err != nil || got.Waiting != 3 || got.Failed != 1 || got.FailingSince.IsZero() == (got.Failures > 0) {
		t.Errorf("%+v, %v", got, err)
	}
}

func webhookStrict(t *testing.T, e *env) {
	e.endpoint(t, "a", true)
	e.tell(t, "a", "0:1", "0:2", "0:3", "-1:0")
	leased := e.wantLeased(t, "a", "-1:0", "0:1")
	e.wantLeased(t, "a")
	e.results(t, failed(leased[1], time.Hour))
	e.wantLeased(t, "a")
	if err := e.Redeliver(e.ctx, "0:1_a"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"0:1", "0:2", "0:3"} {
		e.results(t, delivered(e.wantLeased(t, "a", id)[0]))
	}
	e.wantLeased(t, "a")
}

func webhookLeases(t *testing.T, e *env) {
	e.endpoint(t, "a", false)
	e.tell(t, "a", "1:1", "2:2")
	first := e.lease(t, "a", order.Anywhere, time.Minute, 1)
	if len(first) != 1 {
		t.Fatalf("%+v", first)
	}
	second := e.lease(t, "a", order.Anywhere, time.Minute, 9)
	if len(second) != 1 || second[0].ID == first[0].ID {
		t.Fatalf("of what is leased: %+v", second)
	}
	e.tell(t, "a", "3:3")
	short := e.lease(t, "a", order.Anywhere, 30*time.Millisecond, 9)
	if len(short) != 1 {
		t.Fatalf("%+v", short)
	}
	var third []order.Delivery
	testenv.Eventually(t, 10*time.Second, "the lease runs out", func() bool {
		third = e.lease(t, "a", order.Anywhere, time.Minute, 9)
		return len(third) == 1
	})
	if third[0].ID != short[0].ID || third[0].Fence != 2 {
		t.Fatalf("%+v", third)
	}
	if lost := e.results(t, failed(short[0], time.Hour)); lost != 1 {
		t.Errorf("a late result is not lost: %d", lost)
	}
	if lost := e.results(t, delivered(third[0])); lost != 0 {
		t.Errorf("lost %d", lost)
	}
	if lost := e.results(t, delivered(third[0])); lost != 1 { // written, and the answer lost
		t.Errorf("the second time: %d", lost)
	}
	d, log, err := e.Delivery(e.ctx, short[0].ID)
	if err != nil || d.State != order.DeliveryDelivered || d.Attempts != 1 || len(log) != 2 || log[0].Status != 500 {
		t.Errorf("%+v %+v %v", d, log, err)
	}
	e.results(t, order.Result{Delivery: second[0], State: order.DeliveryWaiting, Released: true})
	again := e.wantLeased(t, "a", strings.TrimSuffix(second[0].ID, "_a"))
	if again[0].Attempts != 0 {
		t.Errorf("one that was given back counts: %+v", again)
	}
	if err := e.RemoveEndpoint(e.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.RecordResults(e.ctx, "a", []order.Result{delivered(again[0])}); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("of a removed endpoint: %v", err)
	}
}

func webhookFailing(t *testing.T, e *env) {
	e.endpoint(t, "a", false)
	var ids []string
	for i := range order.BreakAfter + 12 {
		ids = append(ids, fmt.Sprintf("%d:%d", i+1, i+1))
	}
	e.tell(t, "a", ids...)
	leased := e.lease(t, "a", order.Anywhere, time.Minute, order.BreakAfter)
	var bad, late []order.Result
	for _, d := range e.lease(t, "a", order.Anywhere, time.Minute, 10) {
		late = append(late, failed(d, time.Hour))
	}
	for _, d := range leased {
		bad = append(bad, failed(d, time.Hour))
	}
	e.results(t, bad[1:]...)
	if due, err := e.DueEndpoints(e.ctx); err != nil || len(due) != 1 {
		t.Fatalf("one failure less than too many: %v, %v", due, err)
	}
	e.results(t, bad[0])
	e.results(t, late...) // were under way
	got, err := e.Endpoint(e.ctx, "a")
	if err != nil || got.Failures != order.BreakAfter || time.Until(got.HoldUntil) > 6*time.Second || got.FailingSince.IsZero() || time.Until(got.HoldUntil) < time.Second {
		t.Fatalf("%+v, %v", got, err)
	}
	e.wantLeased(t, "a")
	if due, err := e.DueEndpoints(e.ctx); err != nil || len(due) != 0 {
		t.Errorf("of one that is held: %v, %v", due, err)
	}
	e.tell(t, "a", "-1:0") // goes all the same
	if due, err := e.DueEndpoints(e.ctx); err != nil || len(due) != 1 {
		t.Errorf("with what goes always: %v, %v", due, err)
	}
	e.results(t, delivered(e.wantLeased(t, "a", "-1:0")[0]))
	if got, err = e.Endpoint(e.ctx, "a"); err != nil || got.Failures != 0 || !got.FailingSince.IsZero() || !got.HoldUntil.IsZero() {
		t.Errorf("after a success: %+v, %v", got, err)
	}
	r := failed(e.lease(t, "a", order.Anywhere, time.Minute, 1)[0], time.Second)
	r.Hold = time.Hour
	e.results(t, r)
	if got, err = e.Endpoint(e.ctx, "a"); err != nil || got.Failures != 1 || time.Until(got.HoldUntil) < 50*time.Minute || !got.FailingSince.IsZero() {
		t.Errorf("told to wait: %+v, %v", got, err)
	}
	e.wantLeased(t, "a")
	for _, s := range []order.EndpointState{order.EndpointPaused, order.EndpointActive} {
		if _, err := e.ChangeEndpoint(e.ctx, "a", "webhook.switch", func(p *order.Endpoint) error { p.State = s; return nil }); err != nil {
			t.Fatal(err)
		}
		if n := len(e.lease(t, "a", order.Anywhere, time.Minute, 9)); (n > 0) != (s == order.EndpointActive) {
			t.Errorf("%s: %d leased", s, n)
		}
	}
	list, err := e.Deliveries(e.ctx, order.DeliveryQuery{EndpointID: "a", Limit: 1})
	if err != nil || len(list) != 1 {
		t.Fatal(err)
	}
	e.tell(t, "a", "-1:1")
	gone := givenUp(e.wantLeased(t, "a", "-1:1")[0])
	gone.Gone = true
	e.results(t, gone)
	if got, err = e.Endpoint(e.ctx, "a"); err != nil || got.State != order.EndpointDisabled || got.Reason == "" {
		t.Errorf("gone: %+v, %v", got, err)
	}
	if err := e.Redeliver(e.ctx, "-1:1_a"); !errors.Is(err, sale.ErrConflict) {
		t.Errorf("to a disabled one: %v", err)
	}
	if _, err := e.RedeliverFailed(e.ctx, "a", time.Time{}, 9); !errors.Is(err, sale.ErrConflict) {
		t.Errorf("all to a disabled one: %v", err)
	}
	e.wantLeased(t, "a")
}

func webhookRedelivered(t *testing.T, e *env) {
	e.endpoint(t, "a", false)
	e.tell(t, "a", "1:1", "2:2", "3:3", "4:4")
	leased := e.wantLeased(t, "a", "1:1", "2:2", "3:3", "4:4")
	e.results(t, givenUp(leased[0]), givenUp(leased[1]), givenUp(leased[2]), delivered(leased[3]))
	if list, err := e.Deliveries(e.ctx, order.DeliveryQuery{EndpointID: "a", State: order.DeliveryFailed, Limit: 2}); err != nil || len(list) != 2 || list[0].ID != "3:3_a" {
		t.Fatalf("%+v, %v", list, err)
	} else if rest, err := e.Deliveries(e.ctx, order.DeliveryQuery{EndpointID: "a", State: order.DeliveryFailed, Before: list[1].Number}); err != nil || len(rest) != 1 || rest[0].ID != "1:1_a" {
		t.Fatalf("%+v, %v", rest, err)
	}
	if n, err := e.RedeliverFailed(e.ctx, "a", time.Now().Add(time.Hour), 9); err != nil || n != 0 {
		t.Errorf("since later: %d, %v", n, err)
	}
	if n, err := e.RedeliverFailed(e.ctx, "a", time.Now().Add(-time.Hour), 2); err != nil || n != 2 {
		t.Errorf("two: %d, %v", n, err)
	}
	e.wantLeased(t, "a", "1:1", "2:2")
	for range 2 { // a delivered one too, and twice
		if err := e.Redeliver(e.ctx, "4:4_a"); err != nil {
			t.Fatal(err)
		}
	}
	e.wantLeased(t, "a", "4:4")
	if err := e.Redeliver(e.ctx, "4:4_a"); err != nil { // it is being sent
		t.Fatal(err)
	}
	e.wantLeased(t, "a")
}

func webhookPrune(t *testing.T, e *env) {
	for _, id := range []string{"a", "b", "c"} {
		e.endpoint(t, id, false)
		e.tell(t, id, "1:1", "2:2", "3:3")
		leased := e.wantLeased(t, id, "1:1", "2:2", "3:3")
		e.results(t, delivered(leased[0]), givenUp(leased[1]), failed(leased[2], time.Hour))
	}
	if n, err := e.PruneDeliveries(e.ctx, time.Hour, 100); err != nil || n != 0 {
		t.Errorf("of an hour ago: %d, %v", n, err)
	}
	if err := e.RemoveEndpoint(e.ctx, "b"); err != nil {
		t.Fatal(err)
	}
	n := 0
	testenv.Eventually(t, 10*time.Second, "what is older than nothing goes", func() bool { // after a millisecond
		more, err := e.PruneDeliveries(e.ctx, 0, 2)
		if err != nil || more > 2 {
			t.Fatal(more, err)
		}
		n += more
		return n >= 5
	})
	if more, err := e.PruneDeliveries(e.ctx, 0, 100); err != nil || more != 0 {
		t.Errorf("more: %d, %v", more, err)
	}
	for _, c := range []struct {
		id   string
		left int
	}{{"a", 2}, {"b", 0}, {"c", 2}} {
		if list, err := e.Deliveries(e.ctx, order.DeliveryQuery{EndpointID: c.id}); err != nil || len(list) != c.left {
			t.Errorf("%s: %+v, %v", c.id, list, err)
		}
	}
	if _, log, err := e.Delivery(e.ctx, "2:2_a"); err != nil || len(log) != 1 {
		t.Errorf("the log of what stays: %v, %v", log, err)
	}
}

// Several senders, some of which die with what they have: at no time are two deliveries of one lane sent, and in the end all have been, in order.
func webhookRace(t *testing.T, e *env) {
	const lanes, each = 6, 4
	e.endpoint(t, "a", false)
	for p := range each {
		for l := range lanes {
			e.tell(t, "a", fmt.Sprintf("%d:%d", l+1, p*lanes+l+1))
		}
	}
	var mu sync.Mutex
	last := map[int64]int64{}
	done := 0
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				over := done == lanes*each
				mu.Unlock()
				if over {
					return
				}
				_, leased, err := e.LeaseDeliveries(ctx, "a", order.Anywhere, 100*time.Millisecond, 5)
				if err != nil {
					t.Error(err)
					return
				}
				if rand.N(4) == 0 { // it dies
					continue
				}
				for _, d := range leased {
					mu.Lock() // a late result is not written, so what is written is in order
					lost, err := e.RecordResults(ctx, "a", []order.Result{delivered(d)})
					if err == nil && lost == 0 {
						if last[d.Lane] >= d.Position {
							t.Errorf("lane %d: %d after %d", d.Lane, d.Position, last[d.Lane])
						}
						last[d.Lane] = d.Position
						done++
					}
					mu.Unlock()
					if err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if done != lanes*each {
		t.Errorf("%d delivered, want %d", done, lanes*each)
	}
}
