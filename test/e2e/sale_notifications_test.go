package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/test/testenv"
)

// mute returns a shape. Its processes may not publish or subscribe in Redis.
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

// Every restock is published to all backends and to the gateway. If Redis rejects notifications, restocks still show at
// the gateway and on pages.
func TestRestocksShowWithoutNotifications(t *testing.T) {
	t.Parallel()
	const restocks = 3
	for _, notifies := range []bool{true, false} {
		t.Run(fmt.Sprintf("notifications=%v", notifies), func(t *testing.T) {
			t.Parallel()
			on := shape{edge: "gateway", backends: 2, workers: 1, policy: policyFile(t, roomy)}
			if !notifies {
				on = mute(t, on)
			}
			s := startStack(t, on)
			published := func(restocks int) bool { // to every backend
				return !slices.ContainsFunc(s.admins, func(backend string) bool {
					return metric(t, backend, `sluice_sale_notifications_received_total{type="restocked"}`) != restocks
				})
			}
			forwarded := func() int { return metric(t, s.edgeMetrics, "sluice_edge_sale_notifications_total") }
			if notifies {
				for program, up := range map[string]string{
					s.edgeMetrics: "sluice_edge_sale_notifications_up",
					s.admins[0]:   "sluice_sale_notifications_up",
					s.admins[1]:   "sluice_sale_notifications_up",
				} {
					testenv.Eventually(t, time.Minute, up, func() bool { return metric(t, program, up) == 1 })
				}
			}
			s.createSale("drop", 1)
			if a := s.buy("drop", "ann"); a.Status != 202 {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			page := s.page(t, "drop")
			for i := range restocks {
				page.await(t, "sold_out")
				s.awaitCached("drop", "sold-out")
				before := forwarded()
				if a := s.adminAPI("POST", "/admin/v1/sales/drop/restock", `{"add":2}`); a.Status != 200 {
					t.Fatalf("restock: %d %s", a.Status, a.Body)
				}
				if notifies {
					testenv.Eventually(t, time.Minute, "the backends and the gateway are notified of the restock",
						func() bool { return published(i+1) && forwarded() > before })
				}
				s.sells("drop", fmt.Sprintf("early-%d", i))
				page.await(t, "open")
				s.sells("drop", fmt.Sprintf("late-%d", i))
			}
			if r := s.settle("drop", 1+2*restocks); !r.Balanced || r.Left != 0 {
				t.Errorf("audit: %+v", r)
			}
			if !notifies && (!published(0) || forwarded() > 0) {
				t.Error("Redis has passed notifications on")
			}
		})
	}
}

// metric returns the value of a sample, such as `name{label="value"}`, of the program with its metrics at a base URL.
func metric(t testing.TB, base, sample string) int {
	t.Helper()
	_, rest, _ := strings.Cut(string(do(t, "GET", base+"/metrics", adminToken, "").Body), "\n"+sample+" ")
	value, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(value, 64)
	if err != nil {
		t.Fatalf("%s of %s: %v", sample, base, err)
	}
	return int(n)
}

// page is an open page of a sale.
type page struct {
	state atomic.Value // the last that it received
}

func (s *stack) page(t *testing.T, saleID string) *page {
	t.Helper()
	resp, err := (&http.Client{Transport: checked(http.DefaultTransport)}).Get(s.base + "/v1/sales/" + saleID + "/events")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	p := &page{}
	go func() {
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), `data: {"state":"`); ok {
				p.state.Store(strings.TrimSuffix(rest, `"}`))
			}
		}
	}()
	return p
}

// await waits until the page shows a state.
func (p *page) await(t *testing.T, state string) {
	t.Helper()
	testenv.Eventually(t, time.Minute, "the page shows "+state, func() bool { return p.state.Load() == state })
}
