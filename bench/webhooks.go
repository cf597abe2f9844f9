package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"sluice/backend/events"
	"sluice/backend/events/webhook"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/outbound"
	"sluice/test/testenv"
)

const (
	webhookCount   = 20_000           // deliveries that wait when a run begins
	webhookAnswers = time.Millisecond // how long the receiver takes
	webhookAtOnce  = 32               // concurrent requests of an instance to an endpoint: the default
	loopbackOnly   = "127.0.0.0/8"    // what instances may connect to here
)

// webhooks measures how fast deliveries that wait in SQL are signed, posted and recorded, by one instance and by two,
// beside the same posts by a plain http.Client that signs and records nothing.
func webhooks(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("webhooks", flag.ContinueOnError)
	rounds := flags.Int("rounds", 3, "rounds that count; one more warms up")
	n := flags.Int("deliveries", webhookCount, "deliveries in a run")
	if err := parse(flags, args); err != nil {
		return err
	}
	r := newWebhookRun(s, *n)
	const (
		one, two, ten = "one instance", "two instances", "one instance, ten endpoints"
		plain, plain2 = "http.Client, 32 concurrent", "http.Client, 64 concurrent"
	)
	c := contest{
		name: "webhooks", unit: "deliveries",
		contestants: []contestant{
			{one, r.instances(1, 1)},
			{two, r.instances(2, 1)},
			{ten, r.instances(1, 10)},
			{plain, r.plainly(webhookAtOnce)},
			{plain2, r.plainly(2 * webhookAtOnce)},
		},
		ratios: []ratio{
			{"webhooks of one instance", one, plain, 0, 0},
			{"webhooks of two instances", two, plain2, 0, 0},
			{"webhooks to ten endpoints", ten, plain, 0, 0},
		},
	}
	_, err := c.report(ctx, *rounds)
	return err
}

type webhookRun struct {
	n      int
	server *testenv.Postgres
	hook   string // URL of the receiver
	store  *webhook.Store
	db     *pgx.Conn
	ids    ids
}

func newWebhookRun(s *stage, n int) *webhookRun {
	r := &webhookRun{n: n, server: testenv.StartPostgres(s)}
	r.hook = "http://" + s.child(childConfig{what: "receiver"}).addr + "/hooks/sluice"
	db, sql := openDatabase(s, r.server.URL, nil)
	r.store, r.db = webhook.NewStore(db), sql
	return r
}

// receive is the endpoint of a shop: it responds with success after a millisecond.
func receive(ctx context.Context, ln net.Listener) error {
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil || r.Method != http.MethodPost {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			time.Sleep(webhookAnswers)
			w.WriteHeader(http.StatusNoContent)
		}),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	return server.Serve(ln)
}

// written refills the tables with n deliveries of different orders, spread over the endpoints.
func (r *webhookRun) written(ctx context.Context, endpoints int) error {
	for _, sql := range []string{
		"TRUNCATE webhook_deliveries, webhook_attempts, webhook_endpoints, webhook_old_secrets", "CHECKPOINT",
	} {
		if _, err := r.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	for k := range endpoints {
		e := webhook.Endpoint{
			ID: fmt.Sprintf("ep_%d", k), URL: r.hook, Secret: webhook.NewSecret(),
			Sales: []string{"s" + strconv.Itoa(k)}, // each receives the events of its own sale
		}
		if _, err := r.store.AddEndpoint(ctx, e); err != nil {
			return err
		}
	}
	batch := make([]events.Event, r.n)
	for i := range batch {
		id := r.ids.next()
		batch[i] = events.Event{
			ID: events.ID(id, sale.StatusCreated), Type: events.Created, OrderID: id, SaleID: "s" + strconv.Itoa(i%endpoints),
			Buyer: buyerName(i), Slot: 1, Price: sale.Price{Amount: 9990, Currency: "EUR"}, Was: sale.StatusQueued,
			At: time.Now().Add(time.Second), Position: int64(i + 1),
		}
	}
	h := webhook.Handler(r.store, func(int64) {})
	for batch := range slices.Chunk(batch, 500) {
		if err := h(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// delivered counts the deliveries that are recorded, and signals when all are done.
type delivered struct {
	tally *tally
	other atomic.Int64 // attempts that failed
}

// countingStore is the store of one sender.
type countingStore struct {
	*webhook.Store
	counts *delivered
}

func (s countingStore) RecordResults(
	ctx context.Context, endpoint string, results []webhook.Result,
) ([]int64, error) {
	recorded, err := s.Store.RecordResults(ctx, endpoint, results)
	if err != nil {
		return nil, err
	}
	done := 0
	for _, r := range results {
		if r.State == webhook.DeliveryDelivered && slices.Contains(recorded, r.Delivery.Number) {
			done++
		}
	}
	s.counts.tally.add(done)
	s.counts.other.Add(int64(len(results) - done))
	return recorded, nil
}

// instances measures senders as the program runs them, each with its own connections to the database and to the
// receiver.
func (r *webhookRun) instances(instances, endpoints int) measurement {
	return func(ctx context.Context) (perSecond float64, err error) {
		if err := r.written(ctx, endpoints); err != nil {
			return 0, err
		}
		d := &delivered{tally: newTally(r.n)}
		run, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		everything := func(context.Context) int64 { return math.MaxInt64 } // is written
		var senders []*webhook.Sender
		for range instances {
			db, err := store.Open(ctx, r.server.URL, store.Config{})
			if err != nil {
				return 0, err
			}
			client := outbound.New(outbound.Config{AllowPrivate: []netip.Prefix{netip.MustParsePrefix(loopbackOnly)}})
			counting := countingStore{webhook.NewStore(db), d}
			senders = append(senders, webhook.NewSender(counting, client, everything, webhook.SenderConfig{}))
			defer func() { stop(); running.Wait(); client.Close(); _ = db.Close() }()
		}
		begin := time.Now()
		for _, s := range senders {
			running.Go(func() { _ = s.Run(run) })
		}
		if err := d.tally.wait(ctx); err != nil {
			return 0, err
		}
		took := time.Since(begin)
		stop()
		running.Wait()
		return float64(r.n) / took.Seconds(), r.check(ctx, d)
	}
}

// check returns an error unless each delivery succeeded once and is in the log.
func (r *webhookRun) check(ctx context.Context, d *delivered) error {
	var done, attempts int
	err := r.db.QueryRow(ctx, "SELECT (SELECT count(*) FROM webhook_deliveries WHERE state = 2), "+
		"(SELECT count(*) FROM webhook_attempts WHERE status = 204)").Scan(&done, &attempts)
	if err == nil && (done != r.n || attempts != r.n || d.other.Load() > 0) {
		err = fmt.Errorf("%d delivered by %d attempts, and %d others; want %d", done, attempts, d.other.Load(), r.n)
	}
	return err
}

// plainly posts bodies of the same length to the same receiver, with atOnce concurrent requests.
func (r *webhookRun) plainly(atOnce int) measurement {
	return func(ctx context.Context) (float64, error) {
		if err := r.written(ctx, 1); err != nil { // so that both sides begin in the same state
			return 0, err
		}
		var body string
		if err := r.db.QueryRow(ctx, "SELECT body FROM webhook_deliveries LIMIT 1").Scan(&body); err != nil {
			return 0, err
		}
		client := &http.Client{
			Transport: &http.Transport{MaxIdleConnsPerHost: atOnce, MaxConnsPerHost: atOnce},
			Timeout:   15 * time.Second,
		}
		defer client.CloseIdleConnections()
		next := make(chan struct{}, r.n)
		for range r.n {
			next <- struct{}{}
		}
		close(next)
		var all errgroup.Group
		begin := time.Now()
		for range atOnce {
			all.Go(func() error {
				for range next {
					if err := post(ctx, client, r.hook, body); err != nil {
						return err
					}
				}
				return nil
			})
		}
		err := all.Wait()
		return float64(r.n) / time.Since(begin).Seconds(), err
	}
}

func post(ctx context.Context, client *http.Client, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	return nil
}
