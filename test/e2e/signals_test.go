package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

// mute returns a shape whose processes may not publish or subscribe in Redis.
func mute(t *testing.T, s shape) shape {
	t.Helper()
	s.redis = testenv.StartRedis(t, "--appendonly", "yes", "--appendfsync", "everysec")
	if err := s.redis.Client().
		Do(t.Context(), "ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "resetchannels").
		Err(); err != nil {
		t.Fatal(err)
	}
	s.redisURL = "redis://mute:pw@" + s.redis.Addr + "/0"
	return s
}

// Restocks show at the gateway and on pages immediately with sale notifications, and within a second without them.
// The count is right in both cases.
func TestLosingNotificationsChangesLatencyOnly(t *testing.T) {
	const restocks = 5
	policy := filepath.Join(t.TempDir(), "policy.lua")
	if err := os.WriteFile(policy, []byte(roomy), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, signals := range []bool{true, false} {
		t.Run(fmt.Sprintf("signals=%v", signals), func(t *testing.T) {
			on := shape{edge: "gateway", backends: 2, workers: 1, policy: policy}
			if !signals {
				on = mute(t, on)
			}
			s := startStack(t, on)
			s.createSale("drop", 1)
			if a := s.buy("drop", "ann"); a.Status != 202 {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			page := s.page(t, "drop")
			var edge, pages []time.Duration
			for i := range restocks {
				testenv.Eventually(t, time.Minute, "the page shows sold out", func() bool { return page.state() == "sold_out" })
				s.awaitCached("drop", "sold-out")
				begin := time.Now()
				if a := s.adminAPI("POST", "/admin/v1/sales/drop/restock", `{"add":2}`); a.Status != 200 {
					t.Fatalf("restock: %d %s", a.Status, a.Body)
				}
				_, took := s.sells("drop", fmt.Sprintf("early-%d", i))
				edge = append(edge, took)
				testenv.Eventually(t, time.Minute, "the page shows open", func() bool { return page.since(begin, "open") > 0 })
				pages = append(pages, page.since(begin, "open"))
				s.sells("drop", fmt.Sprintf("late-%d", i))
			}
			slices.Sort(edge)
			slices.Sort(pages)
			t.Logf(
				"from the restock to the first order through the gateway: median %v, longest %v; to the page: median %v, "+
					"longest %v",
				edge[restocks/2].Round(time.Millisecond),
				edge[restocks-1].Round(time.Millisecond),
				pages[restocks/2].Round(time.Millisecond),
				pages[restocks-1].Round(time.Millisecond),
			)
			// on a busy machine too; without notifications it is half a second on average
			if signals && (edge[restocks/2] > 400*time.Millisecond || pages[restocks/2] > 400*time.Millisecond) {
				t.Errorf("a restock shows after %v at the gateway and %v on pages", edge, pages)
			}
			if pages[restocks-2] > 2*time.Second { // the machine may stall once
				t.Errorf("a restock shows on pages after %v", pages)
			}
			if r := s.settle("drop", 1+2*restocks); !r.Balanced || r.Left != 0 {
				t.Errorf("audit: %+v", r)
			}
			metrics := string(do(t, "GET", s.admin+"/metrics", adminToken, "").Body)
			if want := map[bool]string{
				true: "sluice_sale_notifications_up 1", false: "sluice_sale_notifications_up 0",
			}[signals]; !strings.Contains(metrics, want) {
				t.Errorf("metrics lack %q", want)
			}
		})
	}
}

// page is an open page with its last state and the time of it.
type page struct {
	states chan stateAt
	seen   []stateAt
}

type stateAt struct {
	state string
	at    time.Time
}

func (s *stack) page(t *testing.T, saleID string) *page {
	t.Helper()
	resp, err := (&http.Client{Transport: checked(http.DefaultTransport)}).Get(s.base + "/v1/sales/" + saleID + "/events")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	p := &page{states: make(chan stateAt, 1000)}
	go func() {
		defer close(p.states)
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), `data: {"state":"`); ok {
				p.states <- stateAt{strings.TrimSuffix(rest, `"}`), time.Now()}
			}
		}
	}()
	return p
}

func (p *page) read() {
	for {
		select {
		case s, ok := <-p.states:
			if !ok {
				return
			}
			p.seen = append(p.seen, s)
		default:
			return
		}
	}
}

func (p *page) state() string {
	if p.read(); len(p.seen) == 0 {
		return ""
	}
	return p.seen[len(p.seen)-1].state
}

// since returns how long after begin the page received a state; 0: not yet.
func (p *page) since(begin time.Time, state string) time.Duration {
	p.read()
	for _, s := range p.seen {
		if s.state == state && s.at.After(begin) {
			return s.at.Sub(begin)
		}
	}
	return 0
}
