package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	heldBatch  = 100 // orders in a batch: what the worker writes at 12,000 a second
	heldTarget = 0.8 // of the rate without the transaction
)

// held measures how fast orders are written, relayed and posted to a webhook while another transaction is open in the
// database, beside the same without it. Until that transaction ends, PostgreSQL keeps every version of every row.
func held(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("held", flag.ContinueOnError)
	rounds := flags.Int("rounds", 3, "rounds that count; one more warms up")
	n := flags.Int("orders", 300_000, "orders that are written in a run")
	if err := parse(flags, args); err != nil {
		return err
	}
	relay := newEventRun(s)
	hooks := newWebhookRun(s, webhookCount)
	c := contest{name: "held", unit: "orders"}
	for _, part := range []struct {
		name string
		url  string
		run  measurement
	}{
		{"orders written", relay.url, relay.smallBatches(*n)},
		{"events to three groups", relay.url, relay.rate(relay.ours(), eventCount)},
		{"webhooks", hooks.url, hooks.instances(1, 1)},
	} {
		beside := part.name + ", a transaction is open"
		c.contestants = append(c.contestants, contestant{part.name, part.run},
			contestant{beside, besideTransaction(part.url, part.run)})
		c.ratios = append(c.ratios, ratio{part.name, beside, part.name, heldTarget, 0})
	}
	results, err := c.hold(ctx, *rounds)
	if err != nil {
		return err
	}
	printTable(os.Stdout, results)
	return nil
}

// besideTransaction runs a measurement while a transaction that has read a table is open in the database.
func besideTransaction(url string, run measurement) measurement {
	return func(ctx context.Context) (perSecond float64, err error) {
		old, err := pgx.Connect(ctx, url)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, old.Close(context.WithoutCancel(ctx))) }()
		if _, err := old.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM admin_log"); err != nil {
			return 0, fmt.Errorf("open a transaction: %w", err)
		}
		return run(ctx)
	}
}

// smallBatches writes n orders in batches of heldBatch.
func (w *writers) smallBatches(n int) measurement {
	return func(ctx context.Context) (float64, error) {
		all := w.ids.orders(n)
		if err := w.fresh(ctx); err != nil {
			return 0, err
		}
		begin := time.Now()
		for batch := range slices.Chunk(all, heldBatch) {
			if err := w.Write(ctx, batch); err != nil {
				return 0, err
			}
		}
		took := time.Since(begin)
		return float64(n) / took.Seconds(), w.count(ctx, "orders", n)
	}
}
