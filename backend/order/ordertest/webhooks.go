package ordertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/backend/order"
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
