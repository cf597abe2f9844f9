package chaos

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

const sigterm = syscall.SIGTERM

// saleRun is a farm with two open sales: one for the crowd, and one for the pulse.
type saleRun struct {
	*farm

	t        *testing.T
	stage    *stage
	history  *History
	operator *adminActor
	crowd    *crowd
	pulse    pulse
	sales    []string // ids
	closing  func()   // stops the buyers and returns when the last one has finished
}

const (
	mainSale  = "main"
	newBuyers = 40 // a second, besides the pulse
)

func newSaleRun(t *testing.T) *saleRun {
	t.Helper()
	n := openShop(t, newFarm(t))
	n.pulse.entrances = []entrance{
		{"both", pulseSale, []string{n.shop(overTCP), n.shop(overHTTP)}},
		{"nginx", pulseSale, []string{n.shop(nginxTCP), n.shop(nginxHTTP)}},
		{"gateway", pulseSale, []string{n.shop(gatewayTCP), n.shop(gatewayHTTP)}},
	}
	n.offer(mainSale, 1)
	n.offer(pulseSale, 1)
	return n
}

// openShop returns a saleRun without sales and entrances.
func openShop(t *testing.T, f *farm) *saleRun {
	t.Helper()
	n := &saleRun{farm: f, t: t, history: NewHistory()}
	n.stage = n.farm.stage()
	n.operator = newAdmin(n.stage, n.history, 1)
	n.crowd = newCrowd(n.stage, n.history, 1, newBuyers)
	return n
}

// offer creates a sale that does not sell out.
func (n *saleRun) offer(id string, spread int) {
	n.operator.create(id, Offer{Stock: 100_000, PerBuyer: 1, Spread: spread})
	n.sales = append(n.sales, id)
}

// begin starts the buyers.
func (n *saleRun) begin() {
	n.crowd.offers(mainSale)
	ctx, stop := context.WithCancel(n.t.Context())
	var all sync.WaitGroup
	all.Go(func() { n.crowd.run(ctx) })
	all.Go(func() { n.pulse.run(ctx, n.stage, n.history) })
	n.closing = sync.OnceFunc(func() { stop(); all.Wait() })
	n.t.Cleanup(n.closing)
	n.normal(n.t, "a sale that runs")
}

// normal waits until all buyers of two seconds are served without delay, and no accepted order waits for long.
func (n *saleRun) normal(t *testing.T, what string) {
	t.Helper()
	since := time.Now()
	testenv.Eventually(t, 2*time.Minute, what, func() bool {
		if time.Since(since) < 2*time.Second {
			return false
		}
		if oldest := n.oldest(t); oldest >= 0 && oldest < 2 && n.pulse.well(since, 30) {
			return true
		}
		since = time.Now()
		return false
	})
}

// oldest returns the age in seconds of the oldest waiting order, or -1 if no backend answers.
func (n *saleRun) oldest(t *testing.T) float64 {
	for _, name := range backendHosts {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		a := call(ctx, "GET", n.admin(name)+"/admin/v1/queue", adminToken, "", "")
		cancel()
		var q struct {
			Oldest float64 `json:"oldest_age_seconds"`
		}
		if a.status == 200 && json.Unmarshal(a.body, &q) == nil {
			return q.Oldest
		}
	}
	return -1
}

func (n *saleRun) admin(host string) string { return "http://" + n.host(host).at(adminPort) }

// request sends one request and discards the body of the answer.
func (n *saleRun) request(
	t *testing.T,
	client *http.Client,
	method, url, body string,
	header ...string,
) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// cut describes which host is cut off and the effect that buyers may notice.
type cut struct {
	host     string
	away     time.Duration
	entrance string        // only its buyers count; "" means all
	longest  time.Duration // maximum wait for an answer
	refused  int           // maximum buyers of an entrance without an answer or with a 503
	rebuilt  bool          // Redis fails over, and is rebuilt
	streams  bool          // pages are open meanwhile, and must not hang
}

// cutOff disconnects a host for a while. Packets to it vanish without an error.
func (n *saleRun) cutOff(t *testing.T, c cut) {
	var pages []*page
	if c.streams {
		for range 4 {
			pages = append(pages, openPage(t, n.shop(nginxHTTP)), openPage(t, n.shop(gatewayHTTP)))
		}
	}
	from := time.Now()
	n.cut(c.host)
	oldest := 0.0
	for time.Since(from) < c.away {
		oldest = max(oldest, n.oldest(t))
		pause(t.Context(), 200*time.Millisecond)
	}
	n.join(c.host)
	back := time.Now()
	n.normal(t, "all well after "+c.host+" is back")
	for _, e := range n.pulse.entrances {
		f := n.pulse.availability(e.name, from, back)
		t.Logf("%s is cut off for %.0f s, through %s: %s", c.host, c.away.Seconds(), e.name, f)
		if c.entrance != "" && c.entrance != e.name {
			continue
		}
		if f.longest > c.longest {
			t.Errorf("a buyer at %s waited for %v", e.name, f.longest)
		}
		if refused := f.asked - f.sold; refused > c.refused {
			t.Errorf("through %s, %d buyers were not served", e.name, refused)
		}
		if late := n.pulse.availability(e.name, from.Add(c.away*3/4), back); late.sold < late.asked*9/10 ||
			late.slow > late.asked/10 {
			t.Errorf("through %s, sales had not recovered before %s was back: %s", e.name, c.host, late)
		}
		if f = n.pulse.availability(e.name, back, time.Now()); f.longest > c.longest || f.asked != f.sold {
			t.Logf("%s is back, through %s: %s", c.host, e.name, f)
		}
	}
	t.Logf("%s: all well and the queue drained %.1f s after it is back; the oldest order waited for %.1f s",
		c.host, time.Since(back).Seconds()-2, oldest)
	if c.rebuilt {
		n.logTimeline(t, from)
	}
	for _, p := range pages {
		if silence := p.longest(); silence > 65*time.Second {
			t.Errorf("a page was silent for %v", silence)
		} else {
			t.Logf("a page was silent for %.0f s, ended %t", silence.Seconds(), p.ended())
		}
	}
	n.audit(t)
}

// audit audits the sales, as the admin does after each fault.
func (n *saleRun) audit(t *testing.T) {
	t.Helper()
	for _, id := range n.sales {
		out, err := n.sluice("backend-1", "sale", "audit", id)
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(out, "balanced") {
			t.Errorf("sluice sale audit %s: %s", id, out)
		}
	}
}

// confirmed lists the confirmed orders of a sale.
func (h *History) confirmed(saleID string) (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, p := range h.Confirmed {
		if p.Sale == saleID {
			ids = append(ids, id)
		}
	}
	return ids
}

// dump backs the database up while the sale runs.
func (n *saleRun) dump(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "sluice.dump")
	command(t, "pg_dump", "--format=custom", "--file="+file, n.database)
	return file
}

// load restores a dump into a new database.
func (n *saleRun) load(t *testing.T, dump, name string) {
	t.Helper()
	if err := n.psql("postgres", "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	command(t, "pg_restore", "--dbname="+n.databaseURL(name), dump)
}

// end closes the sales and compares both stores with the answers that buyers received.
func (n *saleRun) end(t *testing.T) {
	master := n.redis(n.master())
	defer master.Close()
	n.compare(t, master, master)
}

// compare is end with a client for the keys of all shards, and those of all servers.
func (n *saleRun) compare(t *testing.T, all redisconn.Client, servers ...redisconn.Client) {
	n.closing()
	ctx := t.Context()
	w := &watch{began: time.Now(), redis: all, shards: n.shards, url: n.database}
	if idle := w.idle(ctx, time.Now(), time.Minute); idle >= time.Minute {
		t.Error("the stores are not idle after a minute")
	}
	db, err := pgx.Connect(ctx, n.database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(ctx)
	books, err := readBooks(ctx, servers, db, n.journals)
	if err != nil {
		t.Fatal(err)
	}
	for id := range n.history.Sales {
		books.Audits[id] = n.operator.audit(id)
	}
	verdict := Check(n.history, books)
	for _, v := range append(verdict.Violations(), n.operator.wrong...) {
		t.Error(v)
	}
	h := n.history
	t.Logf("%d orders confirmed, %d rows; answers: %d accepted, %d of them replays, %d refused, %d 503, %d none",
		len(h.Confirmed), len(books.Rows), h.Accepted, h.Replayed, h.Refused, h.Unavailable, h.Unanswered)
	canFail(t, &Result{History: h, Books: books, Verdict: verdict})
}
