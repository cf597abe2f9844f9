package adminhttp

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// fakeEvents has one group with two dead letters and records its calls.
type fakeEvents struct {
	called string
	err    error
}

func (f *fakeEvents) Status(context.Context) (events.Status, error) {
	return events.Status{Stream: 9, UnrelayedSeconds: 2, Groups: []events.GroupStatus{
		{Name: "points", Known: true, Lag: 1, Pending: 2, Consumers: 3, OldestSeconds: 4, Dead: 5},
	}}, f.err
}

func (f *fakeEvents) DeadLetters(_ context.Context, q events.DeadLetterQuery) ([]events.DeadLetter, error) {
	f.called = fmt.Sprintf("%s %s %d", q.Group, q.After, q.Limit)
	if err := events.ValidateGroup(q.Group); err != nil {
		return nil, err
	}
	letters := []events.DeadLetter{
		{
			Group: q.Group, EventID: "7.created", Position: 3, Body: "{}", Reason: "no", Deliveries: 5,
			DiedAt: time.Unix(1700000000, 0).UTC(),
		},
		{Group: q.Group, EventID: "8.created", Retrying: true},
	}
	return letters[:min(q.Limit, 2)], f.err
}

func (f *fakeEvents) did(ctx context.Context, what, group, id string) error {
	f.called = strings.Join([]string{what, store.Actor(ctx), group, id, store.Reason(ctx)}, "|")
	return f.err
}

func (f *fakeEvents) Retry(ctx context.Context, group, id string) error {
	return f.did(ctx, "retry", group, id)
}

func (f *fakeEvents) Drop(ctx context.Context, group, id string) error {
	return f.did(ctx, "drop", group, id)
}

func (f *fakeEvents) Remove(ctx context.Context, group string) error {
	return f.did(ctx, "remove", group, "")
}

func TestGroupsAndTheirDeadLetters(t *testing.T) {
	f := &fakeEvents{}
	cfg := newFakeService().config()
	cfg.Events = f
	s := serve(t, cfg)
	longest := strings.Repeat("7", 255) // the id of an event, which package events bounds
	for _, c := range []exchange{
		{
			"GET", "/admin/v1/groups", "", 200, "",
			`{"stream_entries":9,"unrelayed_seconds":2,"groups":[{"name":"points","known":true,"lag":1,"pending":2,"consumers":3,"oldest_age_seconds":4,"dead":5}]}`,
		},
		{
			"GET", "/admin/v1/groups/points/dead?limit=1&after=6.paid", "", 200, "points 6.paid 1",
			`"died_at":"2023-11-14T22:13:20Z","retrying":false}],"next":"7.created"}`,
		},
		{"GET", "/admin/v1/groups/points/dead", "", 200, "points  100", `"retrying":true}]}`},
		{"GET", "/admin/v1/groups/a%20b/dead", "", 400, "a b  100", `must be 1 to 64 lower-case letters`},
		{"GET", "/admin/v1/groups/points/dead?limit=0", "", 400, "", `limit`},
		{"GET", "/admin/v1/groups/points/dead?after=%00", "", 400, "", `after`},
		{"POST", "/admin/v1/groups/points/dead/7%00/retry", "", 404, "", `not-found`},
		{"POST", "/admin/v1/groups/points/dead/7%FF/cancel", "", 404, "", `not-found`},
		{
			"POST", "/admin/v1/groups/points/dead/7.created/retry", `{"reason":"fixed"}`, 200,
			"retry|admin|points|7.created|fixed", `"status":"retrying"`,
		},
		{
			"POST", "/admin/v1/groups/points/dead/stream-7-0/cancel", "", 200, "drop|admin|points|stream-7-0|",
			`"status":"dropped"`,
		},
		{
			"POST", "/admin/v1/groups/points/dead/" + longest + "/cancel", "", 200, "drop|admin|points|" + longest + "|",
			`"status":"dropped"`,
		},
		{"GET", "/admin/v1/groups/points/dead?after=" + longest, "", 200, "points " + longest + " 100", ``},
		{
			"POST", "/admin/v1/groups/by%7Bhand%7D/remove", `{"reason":"x"}`, 200, "remove|admin|by{hand}||x",
			`"status":"removed"`,
		},
		{"POST", "/admin/v1/groups/points/remove", `{"other":1}`, 400, "", `other`},
		{"POST", "/admin/v1/groups/%ff%fe/remove", "", 404, "", `There is no such consumer group.`},
		{"POST", "/admin/v1/groups/a%00b/remove", "", 404, "", `There is no such consumer group.`},
		{"GET", "/admin/v1/groups/%ff/dead", "", 404, "", `There is no such consumer group.`},
		{"POST", "/admin/v1/groups/%ff/dead/7.created/retry", "", 404, "", `There is no such consumer group.`},
	} {
		s.check(c, &f.called)
	}
	f.err = fmt.Errorf("of SQL: %w", events.ErrNoGroup)
	for path, method := range map[string]string{
		"nosuch/dead": "GET", "nosuch/dead/7.created/retry": "POST", "nosuch/dead/7.created/cancel": "POST",
		"nosuch/remove": "POST",
	} {
		if got := s.operate(method, "/admin/v1/groups/"+path, ""); got.Status != 404 ||
			!strings.Contains(got.Body, "There is no such consumer group.") {
			t.Errorf("%s: %d %s", path, got.Status, got.Body)
		}
	}
	f.err = fmt.Errorf("of SQL: %w", events.ErrNoDeadLetter)
	got := s.operate("POST", "/admin/v1/groups/points/dead/7.created/retry", "")
	if got.Status != 404 || !strings.Contains(got.Body, "There is no such dead letter.") {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	for err, status := range map[error]int{sale.ErrNotFound: 404, sale.ErrConflict: 409, sale.ErrUnavailable: 503} {
		f.err = err
		if got := s.operate(http.MethodPost, "/admin/v1/groups/points/dead/7.created/cancel", ""); got.Status != status {
			t.Errorf("%v: %d %s", err, got.Status, got.Body)
		}
	}
	if got := s.Do("GET", "/admin/v1/groups", ""); got.Status != 401 {
		t.Errorf("without a token: %d", got.Status)
	}
}
