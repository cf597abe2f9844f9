package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/backend/store"
)

func (e *env) endpoint(t *testing.T, id string, strict bool) store.Endpoint {
	t.Helper()
	made, err := e.AddEndpoint(store.WithActor(e.ctx, "eve"), store.Endpoint{ID: id, URL: "https://shop.example/" + id, Title: "T", Secret: "whsec_" + id, Strict: strict})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// tell adds deliveries to an endpoint, one for each "shard:position".
func (e *env) tell(t *testing.T, endpoint string, shardsAndPositions ...string) {
	t.Helper()
	var all []store.Delivery
	for _, text := range shardsAndPositions {
		d := store.Delivery{EndpointID: endpoint, ID: text + "_" + endpoint, Type: "order.created", Body: `{"shard":"` + text + `"}`}
		if _, err := fmt.Sscanf(text, "%d:%d", &d.Sequence, &d.Position); err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	if _, err := e.AddDeliveries(e.ctx, all); err != nil {
		t.Fatal(err)
	}
}

func (e *env) lease(t *testing.T, endpoint string, upTo int64, lease time.Duration, limit int) []store.Delivery {
	t.Helper()
	_, leased, err := e.LeaseDeliveries(e.ctx, endpoint, upTo, lease, limit)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(leased, func(a, b store.Delivery) int { return strings.Compare(a.ID, b.ID) })
	return leased
}

func (e *env) wantLeased(t *testing.T, endpoint string, want ...string) []store.Delivery {
	t.Helper()
	leased := e.lease(t, endpoint, store.Anywhere, time.Minute, 100)
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

func (e *env) results(t *testing.T, results ...store.Result) (lost int) {
	t.Helper()
	lost, err := e.RecordResults(e.ctx, results[0].Delivery.EndpointID, results)
	if err != nil {
		t.Fatal(err)
	}
	return lost
}

func delivered(d store.Delivery) store.Result {
	return store.Result{Delivery: d, State: store.DeliveryDelivered, Status: 204, Took: 7 * time.Millisecond}
}

func failed(d store.Delivery, again time.Duration) store.Result {
	return store.Result{Delivery: d, State: store.DeliveryWaiting, Wait: again, Status: 500, Error: "it answered 500", Answer: "oh\x00 \xffno"}
}

func givenUp(d store.Delivery) store.Result {
	return store.Result{Delivery: d, State: store.DeliveryFailed, Error: "no answer"}
}
