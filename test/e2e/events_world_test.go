package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sluice/backend/events"
	"sluice/backend/events/webhook"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// streamBound is the relay's.
const streamBound = 100_000

type eventChaos struct {
	t         *testing.T
	store     *store.Store
	client    redisconn.Client
	db        *pgx.Conn
	admin     string
	processes []*process
	names     []string // of the groups
	push      *inbox   // Web Push messages
	browser   *webPushBrowser
	shop      *receiver
	endpoint  string // the shop's
	slow      *inbox // nil: there is no such group
}

// slowly runs a group in this process that handles this number of events a second.
func (c *eventChaos) slowly(perSecond int) {
	c.slow = &inbox{seen: map[string]string{}}
	const batch = 100
	consumer, err := events.New(
		c.client,
		keyspace.Space{},
		events.NewStore(c.store.DB),
		"slow",
		func(ctx context.Context, batch []events.Event) error {
			for _, e := range batch {
				c.slow.accept(e.ID, e.Encode())
			}
			select {
			case <-time.After(time.Duration(len(batch)) * time.Second / time.Duration(perSecond)):
			case <-ctx.Done():
			}
			return nil
		},
		events.Config{Concurrency: 1, Batch: batch, Log: slog.New(slog.DiscardHandler)},
	)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := consumer.Run(ctx); err != nil {
			c.t.Error(err)
		}
	}()
	c.t.Cleanup(func() { cancel(); <-done })
}

// inbox is a server that records the messages that it accepts.
type inbox struct {
	mu    sync.Mutex
	seen  map[string]string // id -> body
	clash string            // two bodies that arrived with one id
}

func (b *inbox) count() int { b.mu.Lock(); defer b.mu.Unlock(); return len(b.seen) }

// accept records a message. A repetition counts once.
func (b *inbox) accept(id, body string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before, again := b.seen[id]; again && before != body {
		b.clash = id + ": " + before + " and " + body
	}
	b.seen[id] = body
}

func newEventChaos(t *testing.T, slow int) *eventChaos {
	r, pg := testenv.StartRedis(t), testenv.StartPostgres(t)
	c := &eventChaos{t: t, client: r.Client(), push: &inbox{seen: map[string]string{}}, shop: newReceiver(t)}
	c.shop.anyTime = true
	c.browser = newWebPushBrowser(t, func(id, payload string) int { c.push.accept(id, payload); return 201 })
	env := append(c.browser.env(),
		"SLUICE_TOKEN_SECRET="+tokenSecret, "SLUICE_ADMIN_TOKEN="+adminToken,
		"SLUICE_REDIS_URL="+r.URL, "SLUICE_DATABASE_URL="+pg.URL,
		"SLUICE_ALLOW_PRIVATE=127.0.0.0/8", "SLUICE_WEBHOOK_TIMEOUT=1s", // a short timeout for requests that hang
	)
	for range 2 {
		listen, admin := addr(t), addr(t)
		c.processes = append(c.processes, launch(t, env, "backend", "--listen", listen, "--admin", admin))
		c.admin = "http://" + admin
		testenv.AwaitOK(t, c.admin+"/readyz")
	}
	for _, group := range chaosGroups {
		for range 2 {
			c.processes = append(c.processes, launch(t, env, "group", "run", group))
		}
	}
	body := `{"id":"s","title":"S","stock":1000000,"price":{"amount":1999,"currency":"EUR"},"per_buyer":1,"opens_at":"2020-01-01T00:00:00Z"}`
	if a := do(t, "POST", c.admin+"/admin/v1/sales", adminToken, body, "Content-Type",
		"application/json"); a.Status != 201 {
		t.Fatalf("create sale: %d %s", a.Status, a.Body)
	}
	c.addShop()
	c.store = storetest.Open(t, pg.URL)
	var err error
	if c.db, err = pgx.Connect(t.Context(), pg.URL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.db.Close(t.Context()) })
	c.names = slices.Clone(chaosGroups)
	if slow > 0 {
		c.names = append(c.names, "slow")
		c.slowly(slow)
	}
	testenv.Eventually(t, 60*time.Second, "the groups are known", func() bool { return len(c.groups()) == len(c.names) })
	testenv.Eventually(t, 60*time.Second, "the groups are in Redis", func() bool { // an instance of each has started
		return len(c.client.XInfoGroups(t.Context(), keyspace.Space{}.Events()).Val()) == len(c.names)
	})
	return c
}

// addShop creates an endpoint for the receiver.
func (c *eventChaos) addShop() {
	body := `{"url":"` + c.shop.URL + `/hook","title":"Shop","types":[],"sales":[],"strict":false}`
	a := do(c.t, "POST", c.admin+"/admin/v1/webhooks", adminToken, body, "Content-Type", "application/json")
	var made struct{ ID, Secret string }
	if err := json.Unmarshal(a.Body, &made); err != nil || a.Status != 201 || made.ID == "" {
		c.t.Fatalf("create endpoint: %d %s, %v", a.Status, a.Body, err)
	}
	c.endpoint = made.ID
	c.shop.mu.Lock()
	defer c.shop.mu.Unlock()
	c.shop.secret = made.Secret
}

// hurry makes failed webhooks due immediately: their waits would take hours.
func (c *eventChaos) hurry() {
	const sql = "UPDATE webhook_deliveries SET due_at = now() WHERE endpoint_id = $1 AND state = 1 AND due_at > now()"
	if _, err := c.db.Exec(c.t.Context(), sql, c.endpoint); err != nil {
		c.t.Fatal(err)
	}
}

type groupState struct {
	Name               string
	Lag, Pending, Dead int64
}

func (c *eventChaos) groups() []groupState { return groupsAt(c.admin, adminToken) }

// groupsAt returns the registered groups, or none if the admin API does not respond.
func groupsAt(admin, token string) []groupState {
	var answer struct{ Groups []groupState }
	a, err := try("GET", admin+"/admin/v1/groups", token, "")
	if err == nil {
		_ = json.Unmarshal(a.Body, &answer)
	}
	return answer.Groups
}

// poison appends an event with an unknown version.
func (c *eventChaos) poison(i int) {
	stream := keyspace.Space{}.Events()
	testenv.Eventually(c.t, 60*time.Second, "a poisoned event is in the stream", func() bool {
		newest, err := c.client.XRevRangeN(c.t.Context(), stream, "+", "-", 1).Result()
		if err != nil || len(newest) == 0 || !strings.HasSuffix(newest[0].ID, "-0") {
			return false
		}
		id := strings.TrimSuffix(newest[0].ID, "-0") + "-1"
		return c.client.XAdd(c.t.Context(),
			&redis.XAddArgs{Stream: stream, ID: id, Values: []string{"event", fmt.Sprintf(`{"v":9,"id":"poison-%d"}`, i)}}).
			Err() ==
			nil
	})
}

// handled returns the number of events that each kind of process has handled: relays (at least as many as points),
// then chaosGroups.
func (c *eventChaos) handled() []int {
	var points int
	if err := c.db.QueryRow(c.t.Context(), "SELECT count(*) FROM points").Scan(&points); err != nil {
		c.t.Fatal(err)
	}
	return []int{points, points, c.push.count(), c.shop.taken()}
}

// least returns the number of events of the group that is furthest behind.
func (c *eventChaos) least() int { return slices.Min(c.handled()) }

func (c *eventChaos) progress(of int) string {
	confirmed, groups := c.handled(), c.groups()
	c.shop.mu.Lock()
	defer c.shop.mu.Unlock()
	again := -len(c.shop.took)
	for _, n := range c.shop.took {
		again += n
	}
	return fmt.Sprintf(
		"of %d events %d credited, %d sent by Web Push, %d webhooks with %d requests, of which %d failed, %d hung and %d "+
			"were repeated; groups %+v",
		of,
		confirmed[1],
		confirmed[2],
		len(c.shop.took),
		c.shop.requests,
		c.shop.failed,
		c.shop.hung,
		again,
		groups,
	)
}

// done reports whether every group has every event.
func (c *eventChaos) done(want map[string]bool) bool {
	if c.least() < len(want) {
		return false
	}
	if e, err := webhook.NewStore(c.store.DB).Show(c.t.Context(), c.endpoint); err != nil || e.Waiting > 0 {
		return false
	}
	groups := c.groups()
	return len(groups) == len(c.names) &&
		!slices.ContainsFunc(groups, func(g groupState) bool { return g.Lag+g.Pending > 0 })
}
