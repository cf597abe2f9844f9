package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/backend/events"
	"sluice/backend/events/notify"
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

// A page receives the events of its buyer's order through either edge, whichever backend it is connected to and whichever sold;
// when its backend is killed, it continues at another.
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
			if got := other(); got != bobs+".created" && got != "end" { // its backend may be the one that died
				t.Errorf("bob got %s", got)
			}
		})
	}
}

// Instances of the group are killed while they send. Every event is sent, no more copies than were being sent at a kill, nothing waits in the end and nothing is dead.
func TestEveryOrderIsNotifiedWhenInstancesAreKilled(t *testing.T) {
	t.Parallel()
	const orders, kills, atOnce = 300, 4, 4
	var mu sync.Mutex
	got := map[string]int{}
	ntfy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct{ Tags []string }
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil || len(m.Tags) != 1 {
			t.Errorf("%v %v", m, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		got[m.Tags[0]]++
		if len(got)%5 == 0 && got[m.Tags[0]] == 1 { // one in five is tried again
			w.WriteHeader(500)
		}
	}))
	defer ntfy.Close()
	r, pg := testenv.StartRedis(t), testenv.SharedPostgres(t)
	flags := []string{"--redis", r.URL, "--database", pg.URL, "--push", "ntfy+http" + strings.TrimPrefix(ntfy.URL, "http") + "/orders", "--push-hold", "2s"}
	u := startUp(t, t.TempDir(), flags...)
	if out, errOut, code := sluiceRun(t, nil, "sale", "create", "--id", "s", "--title", "S", "--stock", "5000", "--price", "19.99EUR", "--data", u.data); code != 0 {
		t.Fatal(out, errOut)
	}
	run := func() *process {
		return launch(t, nil, append([]string{"group", "run", "push"}, flags...)...)
	}
	instances := []*process{run(), run()}
	db := storetest.Open(t, pg.URL)
	all := storetest.Orders("s", orders)
	for i := range kills {
		for _, batch := range [][]int{{0, 25}, {25, 50}, {50, 75}} {
			from := i*orders/kills + batch[0]
			if err := db.Write(t.Context(), all[from:from+25]); err != nil {
				t.Fatal(err)
			}
		}
		instances[i%2].crash()
		instances[i%2] = run()
	}
	testenv.Eventually(t, 90*time.Second, "every order is notified", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) == orders
	})
	testenv.Eventually(t, 60*time.Second, "nothing waits", func() bool {
		waiting, err := notify.NewStore(db.DB).CountWaiting(t.Context())
		return err == nil && len(waiting) == 0
	})
	mu.Lock()
	copies := 0
	for _, o := range all {
		n := got[o.ID.String()+".created"]
		if n == 0 {
			t.Errorf("no notification of order %s", o.ID)
		}
		copies += n - 1
	}
	mu.Unlock()
	if most := orders/5 + 1 + kills*atOnce; copies > most {
		t.Errorf("%d copies, want %d at most", copies, most)
	}
	if l, err := events.NewStore(db.DB).DeadLetters(t.Context(), events.DeadLetterQuery{Group: "push"}); err != nil || len(l) != 0 {
		t.Errorf("dead letters %v, %v", l, err)
	}
	for _, p := range instances {
		if code := p.end(syscall.SIGTERM); code != 0 {
			t.Errorf("SIGTERM: exit %d\n%s", code, fmt.Sprint(p.output()))
		}
	}
}

func TestPushSettingsAreCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	stores := []string{"--redis", "redis://127.0.0.1:1/0", "--database", "sqlite:x.db"}
	for _, s := range []struct {
		args string
		env  string
		want string
	}{
		{"--push pigeon", "", "no adapter"},
		{"--push smtp://u:SECRET@h", "", "from must be"},
		{"--push-hold 1ms", "", "--push-hold"},
		{"", "SLUICE_VAPID_KEY=x", "SLUICE_VAPID_KEY"},
		{"--push-contact nobody", "", "--push-contact"},
		{"", "SLUICE_PUSH_ALLOW_PRIVATE=everything", "is not a network"},
	} {
		_, errOut, code := sluiceRun(t, []string{s.env}, append(append([]string{"group", "run", "push"}, stores...), strings.Fields(s.args)...)...)
		if code != 2 || !strings.Contains(errOut, s.want) || strings.Count(strings.TrimSpace(errOut), "\n") != 0 || strings.Contains(errOut, "SECRET") {
			t.Errorf("%s %s: exit %d\n%s", s.args, s.env, code, errOut)
		}
	}
	out, _, code := sluiceRun(t, nil, "group", "vapid")
	key, _, _ := strings.Cut(strings.TrimPrefix(out, "SLUICE_VAPID_KEY="), "\n")
	if code != 0 || len(key) != 43 {
		t.Fatalf("%d %s", code, out)
	}
	_, errOut, code := sluiceRun(t, []string{"SLUICE_VAPID_KEY=" + key}, append([]string{"group", "run", "push"}, stores...)...)
	if code != 2 || !strings.Contains(errOut, "--push-contact") {
		t.Errorf("without a contact: %d %s", code, errOut)
	}
}
