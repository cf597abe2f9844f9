package webhook

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/internal/outbound"
)

func newAdmin(t *testing.T, db *Store) *Admin {
	t.Helper()
	return NewAdmin(db, outbound.New(outbound.Config{}))
}

func (d *Admin) add(t *testing.T, s Settings, strict bool) Endpoint {
	t.Helper()
	if s.URL == nil {
		s.URL = new("https://shop.example/hook")
	}
	e, err := d.Add(t.Context(), s, strict)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func happened(n int64, what events.Type, saleID string, position int64) events.Event {
	id := sale.OrderID(n)
	return events.Event{
		ID:      id.String() + "." + strings.TrimPrefix(string(what), "order."),
		Type:    what,
		OrderID: id,
		SaleID:  saleID,
		Buyer:   "ann",
		Slot:    1,
		Price: sale.Price{
			Amount:   1999,
			Currency: "EUR",
		},
		Was:      sale.StatusQueued,
		At:       time.Now().UTC().Add(time.Minute).Truncate(time.Millisecond),
		Position: position,
	}
}

// PostgreSQL stores the time of the creation in microseconds, and the time of an event is cut to milliseconds.
func TestEventInTheMillisecondOfTheCreationIsSelected(t *testing.T) {
	created := time.Date(2026, 12, 1, 10, 0, 0, 123_456_000, time.UTC)
	for at, want := range map[time.Time]bool{
		created.Add(200 * time.Microsecond): true, created.Add(-time.Millisecond): false,
	} {
		v := happened(7, events.Created, "shoe", 3)
		v.At = at.Truncate(time.Millisecond)
		if got := wants(Endpoint{State: EndpointActive, CreatedAt: created}, v); got != want {
			t.Errorf("an event at %v: %v, want %v", v.At, got, want)
		}
	}
}

func TestEventsAreWrittenOnceForEachEndpointThatSelectsThem(t *testing.T) {
	db := NewStore(storetest.Open(t, storetest.SQLite(t)).DB)
	admin := newAdmin(t, db)
	all := admin.add(t, Settings{}, false)
	paid := admin.add(t, Settings{Types: &[]string{"order.paid"}}, true)
	shoe := admin.add(t, Settings{Sales: &[]string{"shoe"}}, false)
	off := admin.add(t, Settings{}, false)
	if _, err := db.ChangeEndpoint(t.Context(), off.ID, "x",
		func(e *Endpoint) error { e.State = EndpointDisabled; return nil }); err != nil {
		t.Fatal(err)
	}
	paused := admin.add(t, Settings{}, false)
	if _, err := admin.Pause(t.Context(), paused.ID); err != nil {
		t.Fatal(err)
	}
	old := happened(9, events.Created, "shoe", 9)
	old.At = time.Now().Add(-time.Hour)
	batch := []events.Event{
		happened(7, events.Created, "shoe", 3),
		happened(7, events.Paid, "shoe", 4),
		happened(8, events.Created, "hat", 5),
		old,
	}
	var added []int64
	h := Handler(db, func(n int64) { added = append(added, n) })
	for range 2 {
		if err := h(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	if len(added) != 1 || added[0] != 9 {
		t.Errorf("added %v, want 9 once", added)
	}
	for id, want := range map[string]string{
		all.ID: "8_created 7_paid 7_created", paid.ID: "7_paid", shoe.ID: "7_paid 7_created", off.ID: "",
		paused.ID: "8_created 7_paid 7_created",
	} {
		list, err := admin.Deliveries(t.Context(), DeliveryQuery{EndpointID: id})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range list {
			got = append(got, strings.TrimSuffix(d.ID, "_"+id))
			if strings.Contains(d.ID, ".") || d.Sequence == SequenceStrict != (id == paid.ID) {
				t.Errorf("%+v", d)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", id, got, want)
		}
	}
	list, _ := admin.Deliveries(t.Context(), DeliveryQuery{EndpointID: paid.ID})
	want := `{"type":"order.paid","timestamp":"` + batch[1].At.Format(
		time.RFC3339Nano,
	) + `","data":{"order_id":"7","sale_id":"shoe","buyer":"ann","nth":1,"price":{"amount":1999,"currency":"EUR"},"was":"queued"}}`
	if list[0].Body != want || !json.Valid([]byte(want)) {
		t.Errorf("body %s\nwant %s", list[0].Body, want)
	}
}

func TestSignaturesAreThoseOfTheStandard(t *testing.T) {
	// The example of the standard's own documents.
	h := http.Header{}
	if err := sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), `{"test": 2432232314}`,
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", ""); err != nil {
		t.Fatal(err)
	}
	if got, want := h.Get("webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	secrets := []string{NewSecret(), NewSecret()}
	if secrets[0] == secrets[1] {
		t.Error("two secrets are equal")
	}
	now := time.Now()
	if err := sign(h, "a", now, "text", secrets...); err != nil {
		t.Fatal(err)
	}
	for _, secret := range append(secrets, NewSecret()) {
		hook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := hook.Verify([]byte("text"), h); (err == nil) != (secret == secrets[0] || secret == secrets[1]) {
			t.Errorf("%v", err)
		}
	}
	if err := sign(h, "a", now, "text", "whsec_!hush!"); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("a secret that cannot be read: %v", err)
	}
}

func TestJudge(t *testing.T) {
	d := Delivery{ID: "x", Type: "order.paid"}
	after := func(attempts int) Delivery { d := d; d.Attempts = attempts; return d }
	ping := Delivery{ID: "y", Type: TypePing}
	for _, c := range []struct {
		name   string
		d      Delivery
		r      Result
		err    error
		jitter float64
		state  DeliveryState
		wait   time.Duration
		hold   time.Duration
		gone   bool
		text   string
	}{
		{"200", d, Result{Status: 200}, nil, 0, DeliveryDelivered, 0, 0, false, ""},
		{"299", d, Result{Status: 299}, nil, 0, DeliveryDelivered, 0, 0, false, ""},
		{"first failure", d, Result{Status: 500}, nil, 0, DeliveryWaiting, 5 * time.Second, 0, false, "the endpoint returned 500"},
		{"jitter", d, Result{Status: 500}, nil, 0.999999, DeliveryWaiting, 6 * time.Second, 0, false, "500"},
		{
			"third failure", after(2), Result{}, errors.New("no\r\nanswer"), 0, DeliveryWaiting, 2 * time.Minute, 0, false,
			"no answer",
		},
		{"last but one", after(9), Result{Status: 404}, nil, 0, DeliveryWaiting, 10 * time.Hour, 0, false, "404"},
		{"last", after(10), Result{Status: 404}, nil, 0, DeliveryFailed, 0, 0, false, "404"},
		{"redirect", d, Result{Status: 307}, nil, 0, DeliveryWaiting, 5 * time.Second, 0, false, "redirects are not followed"},
		{"gone", d, Result{Status: 410}, nil, 0, DeliveryFailed, 0, 0, true, "410"},
		{
			"slow down", d, Result{Status: 429, Hold: 90 * time.Second}, nil, 0, DeliveryWaiting, 90 * time.Second,
			90 * time.Second, false, "429",
		},
		{
			"slow down, soon", after(3), Result{Status: 503, Hold: time.Second}, nil, 0, DeliveryWaiting, 10 * time.Minute,
			time.Second, false, "503",
		},
		{
			"Retry-After of another status", d, Result{Status: 500, Hold: 90 * time.Second}, nil, 0, DeliveryWaiting,
			5 * time.Second, 0, false, "500",
		},
		{
			"slow down, last", after(10), Result{Status: 429, Hold: 90 * time.Second}, nil, 0, DeliveryFailed, 0,
			90 * time.Second, false, "429",
		},
		{
			"slow down, ping", ping, Result{Status: 503, Hold: 90 * time.Second}, nil, 0, DeliveryFailed, 0,
			90 * time.Second, false, "503",
		},
		{"ping", ping, Result{Status: 500}, nil, 0, DeliveryFailed, 0, 0, false, "500"},
	} {
		c.r.Delivery = c.d
		r := judge(c.r, c.err, defaultSchedule, c.jitter)
		if r.State != c.state || r.Wait.Round(time.Second) != c.wait || r.Hold != c.hold || r.Gone != c.gone ||
			!strings.Contains(r.Error, c.text) ||
			(r.Error == "") != (c.state == DeliveryDelivered) {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
	var sum time.Duration
	for i, wait := range defaultSchedule {
		sum += wait
		if i > 0 && wait < defaultSchedule[i-1] {
			t.Errorf("wait %d is shorter than the one before", i)
		}
	}
	if sum < 24*time.Hour {
		t.Errorf("retries end after %s, less than a day", sum)
	}
}

func TestAdminRejectsInvalidSettingsAndUnknownIDs(t *testing.T) {
	storetest.Engines(t, func(t *testing.T, db *store.Store, _ string) {
		admin := newAdmin(t, NewStore(db.DB))
		for field, s := range map[string]Settings{
			"url":   {URL: new("https://169.254.169.254/latest/meta-data")},
			"title": {Title: new("a\nb")},
			"types": {Types: &[]string{"order.lost"}},
			"sales": {Sales: &[]string{"a b"}},
		} {
			if s.URL == nil {
				s.URL = new("https://shop.example")
			}
			_, err := admin.Add(t.Context(), s, false)
			var invalid *sale.InvalidError
			if !errors.As(err, &invalid) || len(invalid.Fields) != 1 || invalid.Fields[0].Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		if _, err := admin.Add(t.Context(), Settings{}, false); err == nil {
			t.Error("an endpoint without a URL")
		}
		e := admin.add(t, Settings{Types: &[]string{"order.paid", "order.created", "order.paid"}}, false)
		if strings.Join(e.Types, " ") != "order.created order.paid" || !strings.HasPrefix(e.Secret, "whsec_") ||
			strings.Contains(e.ID, ".") {
			t.Errorf("%+v", e)
		}
		if _, err := admin.Change(t.Context(), e.ID, Settings{URL: new("http://x")}); err == nil {
			t.Error("Change accepts a URL that Add rejects")
		}
		if _, err := admin.Rotate(t.Context(), e.ID, 8*24*time.Hour); err == nil {
			t.Error("an old secret that signs for too long")
		}
		ping, err := admin.Ping(t.Context(), e.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{
			"", "nobody", "a\x00b", e.ID + "\x00", ping + "\x00", e.ID + "\xff", strings.Repeat("x", 300), "é",
		} {
			_, err1 := admin.Show(t.Context(), id)
			_, err2 := admin.Change(t.Context(), id, Settings{Title: new("x")})
			_, err3 := admin.Pause(t.Context(), id)
			_, err4 := admin.Rotate(t.Context(), id, 0)
			_, err5 := admin.Ping(t.Context(), id)
			_, err6 := admin.Deliveries(t.Context(), DeliveryQuery{EndpointID: id})
			_, _, err7 := admin.Delivery(t.Context(), e.ID, id)
			_, err8 := admin.RedeliverSince(t.Context(), id, time.Time{})
			err9 := admin.Remove(t.Context(), id)
			err10 := admin.Redeliver(t.Context(), e.ID, id)
			for i, err := range []error{err1, err2, err3, err4, err5, err6, err7, err8, err9, err10} {
				want := ErrNoEndpoint
				if i == 6 || i == 9 {
					want = ErrNoDelivery
				}
				if !errors.Is(err, want) || !errors.Is(err, sale.ErrNotFound) {
					t.Errorf("%q, %d: %v", id, i+1, err)
				}
			}
		}
		other := admin.add(t, Settings{}, false)
		if err := admin.Redeliver(t.Context(), other.ID, ping); !errors.Is(err, ErrNoDelivery) {
			t.Errorf("another endpoint's delivery: %v", err)
		}
	})
}
