package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"sluice/backend/sale"
	"sluice/internal/loop"
)

const (
	// maxReplicaAge bounds the age of an order that is read from the replica.
	maxReplicaAge = time.Second
	// replicaCheck is the interval between comparisons of a replica with the primary.
	replicaCheck = maxReplicaAge / 4
	// replicaTimeout bounds an operation on the replica, after which the primary is queried.
	replicaTimeout = maxReplicaAge / 2
)

// Replica reads orders from a streaming replica of the database while the replica is current, and otherwise from the
// database itself. It requires Run. It is safe for concurrent use.
type Replica struct {
	primary *DB
	replica *DB
	log     *slog.Logger
	asOf    atomic.Pointer[time.Time] // the replica has all transactions that committed before; nil: unknown
}

// NewReplica returns the Replica at a PostgreSQL URL. It does not connect yet. The primary must be PostgreSQL. The
// error is a *URLError.
func NewReplica(primary *DB, databaseURL string, log *slog.Logger) (*Replica, error) {
	if !primary.Dialect().postgres {
		return nil, &URLError{"a replica requires --database to be PostgreSQL"}
	}
	if postgres, _ := isPostgres(databaseURL); !postgres {
		return nil, &URLError{"must begin with postgres://"}
	}
	engine, _, err := connectPostgres(context.Background(), databaseURL, replicaTimeout, nil)
	if err != nil {
		return nil, err
	}
	return &Replica{
		primary: primary, log: log,
		replica: &DB{engine: engine, timeout: replicaTimeout},
	}, nil
}

// Close closes the connections to the replica.
func (r *Replica) Close() error { return r.replica.Close() }

// Order is Store.Order. A row of the replica may be up to maxReplicaAge old: a created order may have been paid or
// cancelled since. An order that the replica does not have is read from the primary.
func (r *Replica) Order(ctx context.Context, id sale.OrderID) (sale.Order, error) {
	found, err := r.OrdersByID(ctx, []sale.OrderID{id})
	o, isRow := found[id]
	if err == nil && !isRow {
		err = fmt.Errorf("store: order %s: %w", id, sale.ErrNotFound)
	}
	return o, err
}

// OrdersByID is Store.OrdersByID. Rows may be as old as those of Order.
func (r *Replica) OrdersByID(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Order, error) {
	var found map[sale.OrderID]sale.Order
	if asOf := r.asOf.Load(); current(asOf) {
		var err error
		if found, err = New(r.replica).OrdersByID(ctx, ids); err != nil {
			r.asOf.CompareAndSwap(asOf, nil) // until the next check succeeds
		}
	}
	missing := slices.DeleteFunc(slices.Clone(ids), func(id sale.OrderID) bool {
		_, isRow := found[id]
		return isRow
	})
	if len(missing) == 0 {
		return found, nil
	}
	rows, err := New(r.primary).OrdersByID(ctx, missing)
	if err != nil {
		return nil, err
	}
	maps.Copy(rows, found)
	return rows, nil
}

// Current reports whether orders are read from the replica: it had all orders at an instant of the last second.
func (r *Replica) Current() bool { return current(r.asOf.Load()) }

func current(asOf *time.Time) bool { return asOf != nil && time.Since(*asOf) <= maxReplicaAge }

// Run compares the replica with the primary until ctx ends; it returns nil.
func (r *Replica) Run(ctx context.Context) error {
	check := func() error { return r.Check(ctx) }
	for loop.Retry(ctx, r.log, "reading orders from the replica", check) {
		loop.Sleep(ctx, replicaCheck)
	}
	return nil
}

var errReplicaLags = errors.New("it lags behind the primary")

// Check reads the position of the primary's log and then whether the replica has replayed the log up to there. If so,
// later queries of the replica see all transactions that committed before Check began. Only this process's clock is
// used.
func (r *Replica) Check(ctx context.Context) error {
	began := time.Now()
	var position, system string
	err := r.primary.View(ctx, "store: position of the primary", func(ctx context.Context, c Conn) error {
		return Get(ctx, c, []any{&position, &system}, "SELECT CAST(pg_current_wal_flush_lsn() AS text), "+systemIdentifier)
	})
	if err != nil {
		return err
	}
	err = r.replica.View(ctx, "store: position of the replica", func(ctx context.Context, c Conn) error {
		var caughtUp, recovering bool
		var other string
		err := Get(ctx, c, []any{&recovering, &caughtUp, &other}, "SELECT pg_is_in_recovery(), "+
			"coalesce(pg_last_wal_replay_lsn() >= CAST(CAST($1 AS text) AS pg_lsn), false), "+systemIdentifier, position)
		switch {
		case err != nil:
			return err
		case other != system || !recovering:
			return fmt.Errorf("%w: it is not a streaming replica of --database", sale.ErrUnavailable)
		case !caughtUp:
			return errReplicaLags
		}
		return nil
	})
	if err == nil {
		r.asOf.Store(&began)
	}
	return err
}

const systemIdentifier = "(SELECT CAST(system_identifier AS text) FROM pg_control_system())"
