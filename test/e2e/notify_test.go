package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/events/notify/notifytest"
	"sluice/backend/sale"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// orderPage is an open page of a buyer; next is the id of its next event.
func (s *stack) orderPage(t *testing.T, base, buyer, after string) (next func() string, hangUp func()) {
	t.Helper()
	req, err := http.NewRequest("GET", base+"/v1/me/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token(buyer))
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := (&http.Client{Transport: checked(&http.Transport{}), Timeout: time.Minute}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 {
		t.Fatalf("a page at %s: %d", base, resp.StatusCode)
	}
	lines := bufio.NewScanner(resp.Body)
	return func() string {
		for lines.Scan() {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				return id
			}
		}
		return "end"
	}, func() { resp.Body.Close() }
}

// A page receives the events of its buyer's order through either edge, from any backend. When its backend is killed, it
// continues at another one.
func TestOpenPagesReceiveEventsThroughEitherEdge(t *testing.T) {
	t.Parallel()
	for _, edge := range []string{"edge", "gateway"} {
		t.Run(edge, func(t *testing.T) {
			t.Parallel()
			s := startStack(t, shape{edge: edge, backends: 2, workers: 1})
			s.createSale("s", 10)
			s.wantReference()
			through, _ := s.orderPage(t, s.base, "ann", "")
			one, _ := s.orderPage(t, s.bases[0], "ann", "")
			two, _ := s.orderPage(t, s.bases[1], "ann", "")
			other, _ := s.orderPage(t, s.base, "bob", "")
			id := s.buyUnit("s", "ann")
			for _, next := range []func() string{through, one, two} {
				if got := next(); got != id+".created" {
					t.Fatalf("got %s, want %s.created", got, id)
				}
			}
			s.backends[0].crash()
			if got := one(); got != "end" {
				t.Errorf("the page of the killed backend got %s", got)
			}
			if a := s.callback("evt-"+edge, "payment.succeeded", id, "r"); a.Status != 200 {
				t.Fatalf("pay: %d %s", a.Status, a.Body)
			}
			if got := two(); got != id+".paid" {
				t.Errorf("got %s, want %s.paid", got, id)
			}
			back, hangUp := s.orderPage(t, s.bases[1], "ann", id+".created")
			if got := back(); got != id+".paid" {
				t.Errorf("the page that reconnected got %s, want the events it missed", got)
			}
			hangUp()
			bobs := s.buyUnit("s", "bob")
			if got := other(); got != bobs+".created" && got != "end" { // its backend may be the one that was killed
				t.Errorf("bob got %s", got)
			}
		})
	}
}

// webPushBrowser is a browser with one subscription per buyer at a push service of the test.
type webPushBrowser struct {
	notifytest.Browser
	service *httptest.Server
	vapid   notify.Key
}

// newWebPushBrowser starts a push service. It decrypts each message, and answers with the status that receive returns
// for the message's event id and payload.
func newWebPushBrowser(t *testing.T, receive func(id, payload string) (status int)) *webPushBrowser {
	t.Helper()
	b := &webPushBrowser{}
	var err error
	if b.Browser, err = notifytest.NewBrowser(); err != nil {
		t.Fatal(err)
	}
	if b.vapid, err = notify.NewKey(); err != nil {
		t.Fatal(err)
	}
	b.service = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the sender was killed
		}
		payload, err := b.Payload(body)
		if err != nil {
			t.Errorf("push service: %v", err)
		}
		w.WriteHeader(receive(payload["id"], fmt.Sprint(payload)))
	}))
	t.Cleanup(b.service.Close)
	return b
}

// env returns the environment of programs that send to the browser.
func (b *webPushBrowser) env() []string {
	return []string{
		"SLUICE_VAPID_KEY=" + b.vapid.Private, "SLUICE_WEB_PUSH_CONTACT=mailto:shop@example.com",
		"SLUICE_WEB_PUSH_ALLOW_PRIVATE=127.0.0.0/8",
	}
}

// subscribe adds a subscription for the buyer of each order.
func (b *webPushBrowser) subscribe(t *testing.T, db *pgx.Conn, orders []sale.Order) {
	t.Helper()
	buyers := make([]string, len(orders))
	for i, o := range orders {
		buyers[i] = o.Buyer
	}
	p := b.Subscription(b.service.URL + "/send/")
	if _, err := db.Exec(t.Context(), `INSERT INTO web_push_subscriptions (buyer, endpoint, p256dh, auth, lang)
		SELECT buyer, $2 || buyer, $3, $4, 'en' FROM unnest($1::text[]) AS buyer`, buyers, p.Endpoint, p.P256dh, p.Auth); err != nil {
		t.Fatal(err)
	}
}

// Instances of the group are killed while they send. Every event is sent, the number of copies is at most the number of
// messages that were being sent or recorded at a kill, no message waits in the end, and there are no dead letters.
func TestEveryOrderIsNotifiedWhenInstancesAreKilled(t *testing.T) {
	t.Parallel()
	const orders, kills, concurrency = 1200, 4, 64
	var mu sync.Mutex
	got := map[string]int{}
	browser := newWebPushBrowser(t, func(id, _ string) int {
		mu.Lock()
		defer mu.Unlock()
		got[id]++
		if len(got)%5 == 0 && got[id] == 1 { // one in five is retried
			return 500
		}
		return 201
	})
	g := startGroup(t, "web-push", browser.env(), "--web-push-hold", "10s") // within it, a slow attempt causes no copy
	db := g.orders
	conn, err := pgx.Connect(t.Context(), g.database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	all := storetest.Orders("s", orders)
	browser.subscribe(t, conn, all)
	for i := range kills {
		for batch := range slices.Chunk(all[i*orders/kills:(i+1)*orders/kills], 25) {
			if err := db.Write(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
		g.kill(i)
	}
	testenv.Eventually(t, 90*time.Second, "every order is notified", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) == orders
	})
	testenv.Eventually(t, 60*time.Second, "no message waits", func() bool {
		waiting, err := notify.NewStore(db.DB).CountWaiting(t.Context())
		return err == nil && waiting == 0
	})
	mu.Lock()
	copies := 0
	for _, o := range all {
		n := got[o.ID.String()+".created"]
		if n == 0 {
			t.Errorf("no notification about order %s", o.ID)
		}
		copies += n - 1
	}
	mu.Unlock()
	if limit := orders/5 + 1 + kills*concurrency; copies > limit {
		t.Errorf("%d copies, want at most %d", copies, limit)
	}
	letters, err := events.NewStore(db.DB).DeadLetters(t.Context(), events.DeadLetterQuery{Group: notify.Group})
	if err != nil || len(letters) != 0 {
		t.Errorf("dead letters %v, %v; want none", letters, err)
	}
	g.stop()
}

func TestWebPushSettingsAreCheckedAtStart(t *testing.T) {
	t.Parallel()
	command := []string{"group", "run", "web-push", "--redis", "redis://127.0.0.1:1/0", "--database", "sqlite:x.db"}
	for _, s := range []struct {
		args string
		env  string
		want string
	}{
		{"--web-push-hold 1ms", "", "--web-push-hold"},
		{"", "SLUICE_VAPID_KEY=SECRET", "SLUICE_VAPID_KEY"},
		{"--web-push-contact nobody", "", "--web-push-contact"},
		{"", "SLUICE_WEB_PUSH_ALLOW_PRIVATE=everything", "is not a network"},
	} {
		_, errOut, code := sluiceRun(t, []string{s.env}, append(slices.Clone(command), strings.Fields(s.args)...)...)
		if code != 2 || !strings.Contains(errOut, s.want) || strings.Contains(errOut, "SECRET") ||
			strings.Count(strings.TrimSpace(errOut), "\n") != 0 {
			t.Errorf("%s %s: exit %d\n%s", s.args, s.env, code, errOut)
		}
	}
	out, _, code := sluiceRun(t, nil, "group", "vapid")
	key, _, _ := strings.Cut(strings.TrimPrefix(out, "SLUICE_VAPID_KEY="), "\n")
	if code != 0 || len(key) != 43 {
		t.Fatalf("%d %s", code, out)
	}
	_, errOut, code := sluiceRun(t, []string{"SLUICE_VAPID_KEY=" + key}, command...)
	if code != 2 || !strings.Contains(errOut, "--web-push-contact") {
		t.Errorf("without a contact: exit %d\n%s", code, errOut)
	}
}
