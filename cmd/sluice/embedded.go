package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// undeliveredFile is where `sluice up` leaves the orders that its embedded Redis still held when it ended in order.
const undeliveredFile = "undelivered"

// embeddedRedis is a Redis in this process.
type embeddedRedis struct {
	url  string
	stop func()
}

// startEmbeddedRedis runs a Redis on a loopback port, until ctx ends and stop is called.
func startEmbeddedRedis(ctx context.Context) (embeddedRedis, error) {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return embeddedRedis{}, fmt.Errorf("embedded Redis: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() { // it expires keys only when its clock is moved
		const step = 250 * time.Millisecond
		t := time.NewTicker(step)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				m.FastForward(step)
			}
		}
	}()
	return embeddedRedis{
		url: "redis://" + m.Addr() + "/0", stop: func() { cancel(); m.Close() },
	}, nil
}

// saveUndelivered writes down every order that is in Redis and not a row: what waits, and what is dead.
func saveUndelivered(ctx context.Context, d dataDir, stock *admission.Stock, sales *store.Sales) error {
	all, err := sales.SaleSummaries(ctx)
	if err != nil {
		return err
	}
	var file bytes.Buffer
	for _, s := range all {
		census, err := stock.CountUnits(ctx, s.ID)
		if err != nil {
			return err
		}
		census.InFlight(func(m keyspace.Message) { fmt.Fprintln(&file, keyspace.EncodeMessage(m)) })
	}
	return d.write(undeliveredFile, file.Bytes())
}

// restoreUndelivered queues what saveUndelivered wrote down, except what is a row by now. It must run before sales
// are loaded, so that these orders are counted.
func restoreUndelivered(
	ctx context.Context,
	d dataDir,
	orders *store.Orders,
	push func(context.Context, keyspace.Message) error,
) (int, error) {
	text, err := os.ReadFile(d.path(undeliveredFile))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var messages []keyspace.Message
	var ids []sale.OrderID
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		m, err := keyspace.DecodeMessage(lines.Text())
		if err != nil {
			return 0, fmt.Errorf("%s: %q is not an order", d.path(undeliveredFile), lines.Text())
		}
		messages, ids = append(messages, m), append(ids, m.ID)
	}
	if len(ids) == 0 {
		return 0, nil
	}
	rows, err := orders.Statuses(ctx, ids)
	if err != nil {
		return 0, err
	}
	restored := 0
	for _, m := range messages {
		if _, isRow := rows[m.ID]; isRow {
			continue
		}
		if err := push(ctx, m); err != nil {
			return restored, err
		}
		restored++
	}
	return restored, nil
}
