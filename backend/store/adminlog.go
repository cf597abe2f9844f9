package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"sluice/backend/sale"
)

type (
	actorKey  struct{}
	reasonKey struct{}
)

// The actors of automatic changes. Admins have other names: see ReservedActor.
const (
	ActorAudit   = "audit"   // pauses a sale that does not balance
	ActorHold    = "hold"    // cancels orders that are not paid in time; their buyers see them as expired
	ActorRebuild = "rebuild" // pauses a sale that may have lost orders
	ActorSluice  = "sluice"  // removes old rehearsals and disables webhook endpoints

	actorUnknown = "unknown"
)

// ReservedActors is the text of a message: the names that no admin may have.
const ReservedActors = ActorAudit + ", " + ActorHold + ", " + ActorRebuild + ", " + ActorSluice + " or " + actorUnknown

// ReservedActor reports whether a name is one of ReservedActors.
func ReservedActor(name string) bool {
	return slices.Contains([]string{ActorAudit, ActorHold, ActorRebuild, ActorSluice, actorUnknown}, name)
}

// WithActor returns a context whose changes are logged with the name of the admin or component that makes them.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// WithReason returns a context whose changes are logged with a reason.
func WithReason(ctx context.Context, reason string) context.Context {
	return context.WithValue(ctx, reasonKey{}, reason)
}

// Actor returns the actor of the context; unknown if it has none.
func Actor(ctx context.Context) string {
	if actor, _ := ctx.Value(actorKey{}).(string); actor != "" {
		return actor
	}
	return actorUnknown
}

// Reason returns the reason of the context; "" if it has none.
func Reason(ctx context.Context) string {
	reason, _ := ctx.Value(reasonKey{}).(string)
	return reason
}

// LogEntry is one line of the action log.
type LogEntry struct {
	Number int64     `json:"number"` // ascending
	At     time.Time `json:"at"`     // by the database's clock
	Actor  string    `json:"actor"`
	Action string    `json:"action"` // such as sale.pause or order.cancel
	Target string    `json:"target"` // the id of a sale, an order, an endpoint, ...
	// SaleID is the sale that the entry concerns; "": none, or unknown, because a process of an earlier version wrote it.
	SaleID string `json:"sale_id,omitempty"`
	Detail string `json:"detail"`
}

// noUnit begins the detail of an entry about a dead order that held no unit.
const noUnit = "it held no unit; "

// HeldNoUnit reports whether an entry about a dead order records that the order held no unit.
func (e LogEntry) HeldNoUnit() bool { return strings.HasPrefix(e.Detail, noUnit) }

// AppendLog appends an entry that concerns no sale to the action log, in the transaction of c. Its actor and its
// reason, which follows the detail, are those of the context.
func AppendLog(ctx context.Context, c Conn, action, target, detail string) error {
	return appendEntry(ctx, c, action, target, "", detail)
}

// logSale is AppendLog for an action on a sale.
func logSale(ctx context.Context, c Conn, action, saleID, detail string) error {
	return appendEntry(ctx, c, action, saleID, saleID, detail)
}

// logOrder is AppendLog for an action on an order.
func logOrder(ctx context.Context, c Conn, action string, o sale.Order, detail string) error {
	return appendEntry(ctx, c, action, o.ID.String(), o.SaleID, detail)
}

func appendEntry(ctx context.Context, c Conn, action, target, saleID, detail string) error {
	if reason := Reason(ctx); reason != "" {
		detail = strings.TrimPrefix(detail+": "+reason, ": ")
	}
	_, err := c.Exec(ctx, "INSERT INTO admin_log (actor, action, target, sale_id, detail) VALUES ($1, $2, $3, $4, $5)",
		Text(Actor(ctx)), Text(action), Text(target), Text(saleID), Text(detail))
	return err
}

// RequireLogged returns sale.ErrNotFound if the action log has no entry of an action on a target. A removal that is
// repeated after a lost response finds the entry of the first call, and can succeed.
func RequireLogged(ctx context.Context, c Conn, action, target string) error {
	found, err := Exists(ctx, c, "SELECT 1 FROM admin_log WHERE target = $1 AND action = $2 LIMIT 1", target, action)
	if err == nil && !found {
		err = sale.ErrNotFound
	}
	return err
}

// Record appends an entry to the action log about a change that was made outside the database. Changes made through
// this package and the packages of its tables are logged in their own transactions. See AppendLog.
func (s *Store) Record(ctx context.Context, action, target, detail string) error {
	return s.Update(ctx, "store: record "+action, func(ctx context.Context, c Conn) error {
		return AppendLog(ctx, c, action, target, detail)
	})
}

const logColumns = "id, at, actor, action, target, sale_id, detail"

func scanLogEntry(row Scanner) (e LogEntry, err error) {
	err = row.Scan(&e.Number, Time(&e.At), &e.Actor, &e.Action, &e.Target, &e.SaleID, &e.Detail)
	return e, err
}

// LastLog returns the last entry about a target with one of these actions, or sale.ErrNotFound.
func (s *Store) LastLog(ctx context.Context, target string, actions ...string) (LogEntry, error) {
	return ViewRow(ctx, s.DB, "store: last log entry of "+target, scanLogEntry, "SELECT "+logColumns+
		" FROM admin_log WHERE target = $1 AND action "+s.Dialect().In("$2")+" ORDER BY id DESC LIMIT 1", target, actions)
}

// LogQuery selects entries of the action log. The zero value selects all.
type LogQuery struct {
	Target string
	Actor  string
	Action string // a full action, such as sale.pause, or its first part, such as sale
	SaleID string // entries that concern this sale
	Before int64  // lower numbers only; 0: all
	Limit  int    // see PageSize
}

// Log returns one page of entries, newest first.
func (s *Store) Log(ctx context.Context, q LogQuery) ([]LogEntry, error) {
	page, args := pageOfLog(q)
	return ViewRows(ctx, s.DB, "store: log", scanLogEntry, page, args...)
}

// pageOfLog returns the query of Log.
func pageOfLog(q LogQuery) (query string, args []any) {
	var f Filter
	orderBy := "id DESC"
	if q.SaleID != "" {
		f.AddConstant("sale_id <> ''") // the condition of the index
		orderBy = f.ofSale(q.SaleID, q.Before, true)
	} else if q.Before > 0 {
		f.Add("id < ?", q.Before)
	}
	f.Equal("target", q.Target)
	f.Equal("actor", q.Actor)
	if strings.Contains(q.Action, ".") {
		f.Add("action = ?", q.Action)
	} else if q.Action != "" { // the prefix "sale." as a range, because LIKE would not use the index; '/' follows '.'
		f.Add("action > ?", q.Action+".")
		f.Add("action < ?", q.Action+"/")
	}
	page := f.Page(orderBy, q.Limit)
	return "SELECT " + logColumns + " FROM admin_log" + page, f.Args
}
