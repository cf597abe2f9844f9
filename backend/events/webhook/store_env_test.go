package webhook

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// env is a database of one engine.
type env struct {
	*sqlTables
	*Store
	url string
	ctx context.Context
}

type sqlTables = store.Store

// onEngines runs a test on an empty database of each engine. The clock of its Store makes every lease begin with the
// first delivery; see events.ScanBound.
func onEngines(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	storetest.Engines(t, func(t *testing.T, db *store.Store, databaseURL string) {
		s, clock := NewStore(db.DB), &stepClock{at: time.Now(), step: time.Hour}
		s.now = clock.now
		test(t, &env{db, s, databaseURL, t.Context()})
	})
}

func (e *env) endpoint(t *testing.T, id string, strict bool) Endpoint {
	t.Helper()
	made, err := e.AddEndpoint(store.WithActor(e.ctx, "eve"),
		Endpoint{ID: id, URL: "https://shop.example/" + id, Title: "T", Secret: "whsec_" + id, Strict: strict})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// add adds deliveries to an endpoint, one for each "sequence:position".
func (e *env) add(t *testing.T, endpoint string, sequencesAndPositions ...string) {
	t.Helper()
	var all []NewDelivery
	for _, text := range sequencesAndPositions {
		d := NewDelivery{
			EndpointID: endpoint,
			ID:         text + "_" + endpoint,
			Type:       "order.created",
			Body:       `{"sequence":"` + text + `"}`,
		}
		if _, err := fmt.Sscanf(text, "%d:%d", &d.Sequence, &d.Position); err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	if _, err := e.AddDeliveries(e.ctx, all); err != nil {
		t.Fatal(err)
	}
}

func (e *env) lease(t *testing.T, endpoint string, upTo int64, lease time.Duration, limit int) []Delivery {
	t.Helper()
	_, leased, err := e.LeaseDeliveries(e.ctx, endpoint, upTo, lease, limit)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(leased, func(a, b Delivery) int { return strings.Compare(a.ID, b.ID) })
	return leased
}

func (e *env) wantLeased(t *testing.T, endpoint string, want ...string) []Delivery {
	t.Helper()
	leased := e.lease(t, endpoint, math.MaxInt64, time.Minute, 100)
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

// results records results, and returns how many are lost.
func (e *env) results(t *testing.T, results ...Result) (lost int) {
	t.Helper()
	recorded, err := e.RecordResults(e.ctx, results[0].Delivery.EndpointID, results)
	if err != nil {
		t.Fatal(err)
	}
	return len(results) - len(recorded)
}

func delivered(d Delivery) Result {
	return Result{Delivery: d, State: DeliveryDelivered, Status: 204, Took: 7 * time.Millisecond}
}

func failed(d Delivery, again time.Duration) Result {
	return Result{
		Delivery: d,
		State:    DeliveryWaiting,
		Wait:     again,
		Status:   500,
		Error:    "the endpoint returned 500",
		Answer:   "oh\x00 \xffno",
	}
}

func givenUp(d Delivery) Result {
	return Result{Delivery: d, State: DeliveryFailed, Error: "no answer"}
}

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }
