package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/test/testenv"
)

// rehearsed holds the parts of a report that these tests read.
type rehearsed struct {
	Verdict string
	Why     []string
	Copy    struct{ ID string }
	Sold    int64
	Rows    int64
	Lost    []string
	Twice   []string
	Stopped string
	Audit   audit
	Removed int64 `json:"removed_orders"`
}

// A crowd for a test: the smallest and fastest that is still a rush. The verdict must not depend on the speed of the
// machine.
func rehearseArgs(more ...string) []string {
	return append(
		[]string{
			"rehearse",
			"--buyers",
			"300",
			"--span",
			"1s",
			"--think",
			"50ms",
			"--lead",
			"500ms",
			"--max-latency",
			"10m",
			"--max-drain",
			"1m",
			"--max-lost",
			"1",
			"--max-limited",
			"1",
		},
		more...)
}

// reportIn reads the single report in a directory.
func reportIn(t *testing.T, dir string) (r rehearsed) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "rehearsal-*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d reports in %s, %v", len(files), dir, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	page, err := os.ReadFile(strings.TrimSuffix(files[0], "json") + "html")
	if err != nil || !strings.Contains(string(page), "<svg") {
		t.Errorf("no page: %v", err)
	}
	return r
}

// wantNoRehearsal checks that no sale of either list is one.
func wantNoRehearsal(t *testing.T, public, data string) {
	t.Helper()
	if a := do(t, "GET", public+"/v1/sales", "", ""); strings.Contains(string(a.Body), "ehears") {
		t.Errorf("the public list: %s", a.Body)
	}
	if out, errOut, code := sluiceRun(t, nil, "sale", "list", "--data", data); code != 0 ||
		strings.Contains(out, "ehears") {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
}

// sluice rehearse against sluice up: to its end, interrupted, and killed. No rehearsal is ever in the public list, and
// none is left in the end.
func TestRehearseAgainstUp(t *testing.T) {
	t.Parallel()
	u := startUp(t, t.TempDir())
	left := u.left(t)
	watching := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-watching:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if a, err := try("GET", u.base+"/v1/sales", "", ""); err == nil && strings.Contains(string(a.Body), "ehears") {
				t.Errorf("the public list: %s", a.Body)
				return
			}
		}
	})
	defer func() { close(watching); watch.Wait() }()

	t.Run("to its end", u.rehearse)
	t.Run("interrupted", u.interruptRehearsal)
	t.Run("killed", u.killRehearsal)
	if now := u.left(t); now != left {
		t.Errorf("the real sale has %d left, had %d", now, left)
	}
	t.Run("arguments", u.rehearseArguments)
}

// rehearse runs a rehearsal to its end: it is a go.
func (u *upProcess) rehearse(t *testing.T) {
	dir := t.TempDir()
	out, errOut, code := sluiceRun(t, nil, rehearseArgs("--data", u.data, "--out", dir)...)
	r := reportIn(t, dir)
	if code != 0 || r.Verdict != "go" || r.Sold != 100 || r.Rows != 100 || r.Removed != 100 || !r.Audit.Balanced ||
		len(r.Lost)+len(r.Twice) > 0 {
		t.Errorf("exit %d, %+v\n%s%s", code, r, out, errOut)
	}
	if !strings.Contains(out, "GO") || !strings.Contains(errOut, " of 300 arrived") || strings.Contains(errOut, "\x1b") {
		t.Errorf("the output is\n%s%s", out, errOut)
	}
	wantNoRehearsal(t, u.base, u.data)
}

// interruptRehearsal interrupts a rehearsal: it reports what it has.
func (u *upProcess) interruptRehearsal(t *testing.T) {
	dir := t.TempDir()
	p := launch(t, nil, rehearseArgs("--data", u.data, "--out", dir, "--span", "1m")...)
	testenv.Eventually(t, time.Minute, "shoppers",
		func() bool { return strings.Contains(p.output(), "shoppers arrive") })
	if code := p.end(syscall.SIGINT); code != 1 {
		t.Errorf("exit %d", code)
	}
	if r := reportIn(t, dir); r.Verdict == "go" || r.Stopped == "" {
		t.Errorf("%+v", r)
	}
	wantNoRehearsal(t, u.base, u.data)
}

// killRehearsal kills a rehearsal: its copy sells to no real buyer, and is removed.
func (u *upProcess) killRehearsal(t *testing.T) {
	p := launch(t, nil, rehearseArgs("--data", u.data, "--no-report", "--span", "1m")...)
	testenv.Eventually(t, time.Minute, "shoppers",
		func() bool { return strings.Contains(p.output(), "shoppers arrive") })
	p.end(syscall.SIGKILL)
	var list struct {
		Rehearsals []struct {
			ID     string
			Closes time.Time `json:"closes_at"`
		}
	}
	out, errOut, code := sluiceRun(t, nil, "sale", "list", "--data", u.data, "--json")
	if code != 0 || json.Unmarshal([]byte(strings.Replace(out, `"sales"`, `"rehearsals"`, 1)), &list) != nil {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}
	id := ""
	for _, s := range list.Rehearsals {
		if strings.HasPrefix(s.ID, "rehearsal-demo-") {
			id = s.ID
			if s.Closes.IsZero() || time.Until(s.Closes) > 10*time.Minute {
				t.Errorf("it closes at %s", s.Closes)
			}
		}
	}
	buyer, _, _ := sluiceRun(t, nil, "token", "--user", "ann", "--data", u.data)
	if a := do(t, "POST", u.base+"/v1/sales/"+id+"/orders", strings.TrimSpace(buyer), ""); id == "" || a.Status == 202 {
		t.Errorf("%q sells to a real buyer: %d %s", id, a.Status, a.Body)
	}
	testenv.Eventually(t, time.Minute, "its remains are removed", func() bool {
		out, errOut, code = sluiceRun(t, nil, "rehearse", "clean", "--data", u.data)
		return code == 0
	})
	if !strings.Contains(out, id) {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
	wantNoRehearsal(t, u.base, u.data)
}

// rehearseArguments runs rehearsals that are refused.
func (u *upProcess) rehearseArguments(t *testing.T) {
	for _, id := range []string{"shoe", "bag"} {
		if out, errOut, code := sluiceRun(t, nil, "sale", "create", "--id", id, "--title", "For sale", "--stock", "5",
			"--price", "1EUR", "--data", u.data); code != 0 {
			t.Fatal(out, errOut)
		}
	}
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"rehearse shoe", "shoe is open", 1},
		{"rehearse bag", "shoe is open", 1},
		{"rehearse", "SALE is missing: want one of demo, ", 2},
		{"rehearse other --beside-real-sales", `no sale "other"`, 1},
		{"rehearse shoe --buyers 0 --bots 2 --curve flat --span 0s --max-lost 2 --out /nowhere", "--curve", 2},
		{"rehearse shoe shoe", "", 2},
		{"rehearse shoe --server " + u.admin, "--target", 2},
		{"rehearse clean shoe", "is not a rehearsal", 2},
		{"rehearse clean rehearsal-none", `there is no rehearsal "rehearsal-none" (see the admin console)`, 1},
		{"rehearse clean", "there is no rehearsal", 0},
	} {
		out, errOut, code := sluiceRun(t, nil, append(strings.Fields(c.args), "--data", u.data)...)
		if code != c.code || !strings.Contains(out+errOut, c.want) || strings.Count(errOut, "\n") > 1 {
			t.Errorf("%s: exit %d, %s%s", c.args, code, out, errOut)
		}
	}
}

// A rehearsal through the gateway, over Redis and PostgreSQL, is "go" although a worker is killed and Redis is paused
// during it.
func TestRehearseSurvivesKilledWorkerAndPausedRedis(t *testing.T) {
	t.Parallel()
	s := startStack(t, shape{edge: "gateway", backends: 1})
	var workers [2]*process
	for i := range workers {
		workers[i] = launch(t, s.env, "worker", "--lease", "1s")
	}
	opens := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	if a := s.adminAPI(
		"POST",
		"/admin/v1/sales",
		fmt.Sprintf(`{"id":"shoe","title":"Shoe","stock":150,"price":{"amount":1999,"currency":"EUR"},"opens_at":%q}`, opens),
	); a.Status != 201 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	disturbed := make(chan struct{})
	go func() {
		defer close(disturbed)
		for t.Context().Err() == nil { // until the copy sells
			var list struct{ Rehearsals []struct{ Accepted int64 } }
			a := s.adminAPI("GET", "/admin/v1/rehearsals", "")
			if json.Unmarshal(a.Body, &list) == nil && len(list.Rehearsals) > 0 && list.Rehearsals[0].Accepted > 0 {
				break
			}
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // the interval of a poll in a goroutine
		}
		workers[0].Signal(syscall.SIGKILL)
		if err := s.redis.Client().ClientPause(context.Background(), 300*time.Millisecond).Err(); err != nil {
			t.Errorf("CLIENT PAUSE: %v", err)
		}
	}()
	dir := t.TempDir()
	args := rehearseArgs("shoe", "--server", s.admin, "--target", s.base, "--out", dir, "--stock", "200")
	out, errOut, code := sluiceRun(t, s.env, args...)
	<-disturbed
	r := reportIn(t, dir)
	if code != 0 || r.Verdict != "go" || r.Sold != 200 || r.Rows != 200 || len(r.Lost)+len(r.Twice) > 0 {
		t.Fatalf("exit %d, %+v\n%s%s", code, r, out, errOut)
	}
	if a := s.adminAPI("GET", "/admin/v1/reports/"+r.Copy.ID, ""); a.Status != 200 ||
		!strings.Contains(string(a.Body), `"verdict":"go"`) {
		t.Errorf("the stored report: %d %.300s", a.Status, a.Body)
	}
	<-workers[0].Done()
	if keys, err := s.redis.Client().Keys(t.Context(), "*"+r.Copy.ID+"*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("Redis still holds %v, %v", keys, err)
	}
	if a := s.adminAPI("GET", "/admin/v1/sales/shoe", ""); !strings.Contains(string(a.Body), `"left":150`) {
		t.Errorf("the real sale: %s", a.Body)
	}
}

// Through nginx: its limits, refusal cache and bypass lists affect the crowd as they affect real buyers, and the report
// names every refusal.
func TestRehearseThroughNginx(t *testing.T) {
	t.Parallel()
	s := startStack(t, shape{edge: "edge", backends: 1, workers: 1})
	opens := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	if a := s.adminAPI(
		"POST",
		"/admin/v1/sales",
		fmt.Sprintf(`{"id":"shoe","title":"Shoe","stock":100,"price":{"amount":1999,"currency":"EUR"},"opens_at":%q}`, opens),
	); a.Status != 201 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	dir := t.TempDir()
	out, errOut, code := sluiceRun(
		t,
		s.env,
		rehearseArgs("shoe", "--server", s.admin, "--target", s.base, "--out", dir, "--bots", "0.2")...)
	r := reportIn(t, dir)
	if code != 0 || r.Verdict != "go" || r.Sold != 100 || r.Rows != 100 || r.Removed != 100 || !r.Audit.Balanced ||
		len(r.Lost)+len(r.Twice) > 0 {
		t.Fatalf("exit %d, %+v\n%s%s", code, r, out, errOut)
	}
	if a := s.adminAPI("GET", "/admin/v1/sales/shoe", ""); !strings.Contains(string(a.Body), `"left":100`) {
		t.Errorf("the real sale: %s", a.Body)
	}
	t.Log(out)

	const withoutEdge = "The target is an edge: want yes, found a backend"
	_, errOut, code = sluiceRun(t, s.env,
		rehearseArgs("shoe", "--server", s.admin, "--target", s.bases[0], "--no-report", "--buyers", "20")...)
	if code != 1 || !strings.Contains(errOut, withoutEdge) {
		t.Errorf("a rehearsal without the edge: exit %d, %s", code, errOut)
	}
}
