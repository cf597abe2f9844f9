package e2e

import (
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/backend/events"
	"sluice/backend/events/points"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// points returns the body of the response, "" if a test that polls is over the limit of its address.
func (u *upProcess) points(t *testing.T, bearer string) string {
	t.Helper()
	a := do(t, "GET", u.base+"/v1/me/points", bearer, "")
	if a.Status == 429 {
		return ""
	}
	if a.Status != 200 {
		t.Fatalf("points: %d %s", a.Status, a.Body)
	}
	return strings.TrimSpace(string(a.Body))
}

// Points are credited for an order and removed with it, and survive a kill -9 of a process together with its Redis.
func TestPointsFollowOrdersThroughTheEdge(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	u := startUp(t, data)
	token, _, _ := sluiceRun(t, nil, "token", "--user", "ann", "--data", data)
	ann := strings.TrimSpace(token)
	if got := u.points(t, ann); got != `{"points":0}` {
		t.Fatalf("before: %s", got)
	}
	if a := do(t, "GET", u.base+"/v1/me/points", "", ""); a.Status != 401 {
		t.Errorf("without a token: %d", a.Status)
	}
	a := do(t, "POST", u.base+"/v1/sales/demo/orders", ann, "")
	if a.Status != 202 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	u.end(syscall.SIGKILL) // immediately: the order may be in any state
	u = startUp(t, data)
	testenv.Eventually(t, time.Minute, "the order is credited",
		func() bool { return u.points(t, ann) == `{"points":19}` })
	stdout, errOut, code := sluiceRun(t, nil, "order", "cancel", a.OrderID, "--reason", "x", "--data", data)
	if code != 0 {
		t.Fatalf("cancel: %s%s", stdout, errOut)
	}
	testenv.Eventually(t, time.Minute, "the points are taken back",
		func() bool { return u.points(t, ann) == `{"points":0}` })

	for _, s := range []struct {
		args string
		code int
		want string
	}{
		{"group list", 0, "points"},
		{"group list --json", 0, `"lag"`},
		{"group remove nosuch --yes", 1, "there is no consumer group"},
		{"group run nosuch --redis redis://127.0.0.1:1/0 --database sqlite:x.db", 2, "no group"},
		{"group run points", 2, "no Redis"},
		{"group run points --points 1/0", 2, "not a points rule"},
		{"dead --group points list", 0, "EVENT"},
		{"dead --group points retry 7.created", 1, "(see sluice dead --group points list)"},
		{"dead --group points cancel --all", 0, ""},
		{"dead --group points cancel", 2, "--all"},
		{"dead --group {x} list", 2, "lower-case letters"},
		{"dead --group nosuch list", 1, "there is no consumer group"},
		{"dead --group nosuch cancel --all", 1, "there is no consumer group"},
		{"dead --group nosuch retry 7.created", 1, "there is no consumer group"},
	} {
		args := strings.Fields(s.args)
		if !strings.Contains(s.args, "run ") {
			args = append(args, "--data", data)
		}
		stdout, errOut, code := sluiceRun(t, nil, args...)
		if code != s.code || !strings.Contains(strings.ToLower(stdout+errOut), strings.ToLower(s.want)) ||
			code != 0 && strings.Count(strings.TrimSpace(errOut), "\n") != 0 {
			t.Errorf("sluice %s: exit %d, want %d and %q\n%s%s", s.args, code, s.code, s.want, stdout, errOut)
		}
	}

	if _, errOut, code := sluiceRun(t, nil, "group", "remove", "points", "--yes", "--data", data); code != 0 {
		t.Fatal(errOut)
	}
	testenv.Eventually(t, time.Minute, "the process logs that the group ended",
		func() bool { return strings.Contains(u.output(), "the group was removed") })
	bob, _, _ := sluiceRun(t, nil, "token", "--user", "bob", "--data", data)
	if a := do(t, "POST", u.base+"/v1/sales/demo/orders", strings.TrimSpace(bob), ""); a.Status != 202 {
		t.Errorf("a purchase without the group: %d %s", a.Status, a.Body)
	}
}

// Instances of the group are killed repeatedly while orders are written and cancelled. In the end every buyer has the
// points of the orders that are not cancelled, and no event is pending or dead.
func TestPointsAreExactWhenInstancesAreKilled(t *testing.T) {
	t.Parallel()
	const orders, kills = 1200, 6
	g := startGroup(t, "points", nil)
	db := g.orders
	all := storetest.Orders("s", orders)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i, batch := range slices.Collect(slices.Chunk(all, 20)) {
			if err := db.Write(t.Context(), batch); err != nil {
				t.Error(err)
				return
			}
			for _, o := range batch[:3] {
				if _, _, err := db.CancelOrder(t.Context(), o.ID); err != nil {
					t.Error(err)
				}
			}
			if i%(orders/20/kills) == 0 {
				g.kill(i / (orders / 20 / kills))
			}
		}
	})
	wg.Wait()
	if t.Failed() {
		return
	}
	testenv.Eventually(t, 90*time.Second, "every order is credited, and the cancelled ones are taken back", func() bool {
		var sum int64
		for i, o := range all {
			n, err := points.NewStore(db.DB).Balance(t.Context(), o.Buyer)
			if err != nil {
				t.Fatal(err)
			}
			want := int64(19)
			if i%20 < 3 {
				want = 0
			}
			if n != want {
				return false
			}
			sum += n
		}
		return sum == 19*orders*17/20
	})
	testenv.Eventually(t, 60*time.Second, "nothing is pending", func() bool {
		out, _, _ := sluiceRun(t, nil, "group", "list", "--json", "--data", g.up.data)
		return strings.Contains(out, `"pending": 0`) && strings.Contains(out, `"lag": 0`)
	})
	if l, err := events.NewStore(db.DB).
		DeadLetters(t.Context(), events.DeadLetterQuery{Group: "points"}); err != nil ||
		len(l) != 0 {
		t.Errorf("dead letters %v, %v", l, err)
	}
	g.stop()
}
