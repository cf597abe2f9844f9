package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/test/testenv"
)

const (
	heldBatch  = 100       // orders in a batch: what the worker writes at 12,000 a second
	heldUntil  = time.Hour // a run ends before, with its orders
	heldTarget = 0.8       // of the rate without the transaction
)

// held measures how fast orders are written, relayed and posted to a webhook while another transaction is open in the
// database, beside the same without it. Until that transaction ends, PostgreSQL keeps every version of every row.
func held(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("held", flag.ContinueOnError)
	rounds := flags.Int("rounds", 3, "rounds that count; one more warms up")
	only := flags.String("only", "", "measures only what matches this regular expression")
	n := flags.Int("orders", 300_000, "orders that a run writes")
	if err := parse(flags, args); err != nil {
		return err
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	relay := newEventRun(s)
	relay.cfg.seconds = heldUntil
	hooks := newWebhookRun(s, webhookCount)
	spent := 0.0
	c := contest{name: "held", unit: "orders", cost: func() float64 { return spent }, costOf: "PostgreSQL"}
	for _, part := range []struct {
		name string
		sql  *testenv.Postgres
		n    int
		run  measurement
	}{
		{"orders written", relay.server, *n, func(ctx context.Context) (float64, error) {
			return relay.each(ctx, "orders", *n, heldBatch, relay.Write)
		}},
		{"events to three groups", relay.server, eventCount, relay.rate(relay.ours(), eventCount)},
		{"webhooks", hooks.server, webhookCount, hooks.instances(1, 1)},
	} {
		beside := part.name + ", a transaction is open"
		c.contestants = append(c.contestants,
			contestant{part.name, metered(part.sql, part.n, &spent, part.run)},
			contestant{beside, metered(part.sql, part.n, &spent, besideTransaction(part.sql.URL, part.run))})
		c.ratios = append(c.ratios, ratio{part.name, beside, part.name, heldTarget, 0})
	}
	_, err = c.only(match).report(ctx, *rounds)
	return err
}

// metered sets spent to the processor time of the PostgreSQL server per item, in microseconds, including the
// preparation of the run.
func metered(server *testenv.Postgres, n int, spent *float64, run measurement) measurement {
	parts := newMeter("PostgreSQL", server.Pid())
	return func(ctx context.Context) (float64, error) {
		before := parts.read()[0].sum()
		perSecond, err := run(ctx)
		*spent = micros(parts.read()[0].sum()-before, int64(n))
		return perSecond, err
	}
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
