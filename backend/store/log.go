package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sluice/backend/sale"
)

type actorKey struct{}

// WithActor names who asks for the changes made with this context. The store writes the name in the desk log, in the same transaction as the change.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

func actorOf(ctx context.Context) string {
	if actor, ok := ctx.Value(actorKey{}).(string); ok && actor != "" {
		return actor
	}
	return "unknown"
}

type reasonKey struct{}

// WithReason says why the changes made with this context are made; the desk log keeps it.
func WithReason(ctx context.Context, reason string) context.Context {
	return context.WithValue(ctx, reasonKey{}, reason)
}

// because is the reason of the context, to be written behind a detail.
func because(ctx context.Context) string {
	if reason, ok := ctx.Value(reasonKey{}).(string); ok && reason != "" {
		return ": " + reason
	}
	return ""
}

// LastLog returns the last line of the desk log about a target with one of two actions, or sale.ErrNotFound.
func (s *Store) LastLog(ctx context.Context, target, action, or string) (LogEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var e LogEntry
	var at instant
	err := one(ctx, s.engine.direct(), []any{&at, &e.Actor, &e.Action, &e.Target, &e.Detail},
		"SELECT at, actor, action, target, detail FROM desk_log WHERE target = $1 AND action IN ($2, $3) ORDER BY id DESC LIMIT 1", target, action, or)
	if errors.Is(err, errNoRow) {
		err = sale.ErrNotFound
	}
	if err != nil {
		return LogEntry{}, fmt.Errorf("order: log of %s: %w", target, err)
	}
	e.At = at.Time
	return e, nil
}

// LogEntry is one line of the desk log: who did what to which sale or order.
type LogEntry struct {
	Number int64     // grows with every line
	At     time.Time // by the database's clock
	Actor  string
	Action string // such as sale.pause, order.cancel
	Target string // a sale id or an order id
	Detail string
}

// noUnit begins what is noted of a dead order that held no unit.
const noUnit = "it held no unit; "

// HeldNoUnit tells whether a line about a dead order says that there was no unit to give back.
func (e LogEntry) HeldNoUnit() bool { return strings.HasPrefix(e.Detail, noUnit) }

// Record writes one line in the desk log, with the actor of the context (see WithActor). The store's own changes write theirs themselves; this is for
// what an operator does elsewhere.
func (s *Store) Record(ctx context.Context, action, target, detail string) error {
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		return record(ctx, db, actorOf(ctx), action, target, detail+because(ctx))
	})
	if err != nil {
		return fmt.Errorf("order: record %s: %w", action, err)
	}
	return nil
}

// LogQuery selects lines of the desk log. The zero value selects all.
type LogQuery struct {
	Target string // a sale, an order, an endpoint ...
	Actor  string
	Action string // the whole, as sale.pause, or its first word, as sale
	Before int64  // lower numbers only; 0: all
	Limit  int    // 1 to 1000; 0: 100
}

// Log returns one page of the desk log, the newest line first.
func (s *Store) Log(ctx context.Context, q LogQuery) ([]LogEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var f filter
	if q.Before <= 0 {
		q.Before = Anywhere
	}
	f.add("id < ?", q.Before)
	if q.Target != "" {
		f.add("target = ?", q.Target)
	}
	if q.Actor != "" {
		f.add("actor = ?", q.Actor)
	}
	if strings.Contains(q.Action, ".") {
		f.add("action = ?", q.Action)
	} else if q.Action != "" { // between "sale." and "sale/", so that an index finds it
		f.add("action > ?", q.Action+".")
		f.add("action < ?", q.Action+"/")
	}
	f.args = append(f.args, pageOf(q.Limit))
	var entries []LogEntry
	err := s.engine.direct().query(ctx, func(r row) error {
		var e LogEntry
		var at instant
		err := r.Scan(&e.Number, &at, &e.Actor, &e.Action, &e.Target, &e.Detail)
		e.At = at.Time
		entries = append(entries, e)
		return err
	}, "SELECT id, at, actor, action, target, detail FROM desk_log WHERE "+f.where()+" ORDER BY id DESC LIMIT $"+strconv.Itoa(len(f.args)), f.args...)
	if err != nil {
		return nil, fmt.Errorf("order: log: %w", err)
	}
	return entries, nil
}

func record(ctx context.Context, db conn, actor, action, target, detail string) error {
	_, err := db.exec(ctx, "INSERT INTO desk_log (actor, action, target, detail) VALUES ($1, $2, $3, $4)",
		storable(actor), storable(action), storable(target), storable(detail))
	return err
}

// storable drops what PostgreSQL's text cannot hold: a strange byte in a failure's reason must not keep a person from cancelling the order.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}
