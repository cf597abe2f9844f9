package events

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// DeadLetter is an event that a group failed to handle.
type DeadLetter struct {
	Group      string    `json:"-"`
	EventID    string    `json:"event"`    // unique within the group
	Position   int64     `json:"position"` // in the stream when it was given up; 0: unknown
	Body       string    `json:"body"`     // as it was in the stream
	Reason     string    `json:"reason"`
	Deliveries int64     `json:"deliveries"`
	DiedAt     time.Time `json:"died_at"`
	Retrying   bool      `json:"retrying"` // an admin requested a retry, which has not ended yet

	leasedUntil time.Time // set by LeaseRetry, for FailRetry and ReleaseRetry
}

// AddDeadLetter stores a dead letter. If it exists from an earlier attempt, its reason is replaced and its retry ends.
// If the dead letter was dropped before, or its group was removed, nothing is stored and AddDeadLetter returns
// sale.ErrNotFound.
func (s *Store) AddDeadLetter(ctx context.Context, l DeadLetter) error {
	op := fmt.Sprintf("events: add dead letter %s of group %s", l.EventID, l.Group)
	return s.db.Update(ctx, op, func(ctx context.Context, c store.Conn) error {
		registered, err := lockGroup(ctx, c, l.Group)
		if err != nil {
			return err
		}
		id := store.Text(l.EventID)
		last, err := lastSettled(ctx, c, l.Group, id)
		if err == nil && (last == droppedDead || last == removedGroup && !registered) {
			err = sale.ErrNotFound
		}
		if err != nil {
			return err
		}
		_, err = c.Exec(ctx, `INSERT INTO event_dead_letters (group_name, event_id, position, body, reason, deliveries)
			VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (group_name, event_id) DO UPDATE SET reason = excluded.reason, retry = 0, leased_until = NULL,
				deliveries = CASE WHEN event_dead_letters.deliveries < excluded.deliveries
					THEN excluded.deliveries ELSE event_dead_letters.deliveries END`,
			l.Group, id, l.Position, store.Text(l.Body), store.Text(l.Reason), l.Deliveries)
		return err
	})
}

// FailRetry ends a retry that failed: it stores the reason and the deliveries of a dead letter that LeaseRetry has
// returned. If the lease has expired, and the dead letter was leased again or no longer exists, nothing changes.
func (s *Store) FailRetry(ctx context.Context, l DeadLetter) error {
	op := fmt.Sprintf("events: fail retry of dead letter %s of group %s", l.EventID, l.Group)
	_, err := store.UpdateRows(ctx, s.db, op, `UPDATE event_dead_letters SET reason = $3, deliveries = $4, retry = 0,
		leased_until = NULL WHERE group_name = $1 AND event_id = $2 AND leased_until = $5`,
		l.Group, l.EventID, store.Text(l.Reason), l.Deliveries, l.leasedUntil)
	return err
}

// ReleaseRetry ends the lease of a dead letter that LeaseRetry has returned. The retry stays requested. If the lease
// was the second and last one of the request, the dead letter can be leased once more.
func (s *Store) ReleaseRetry(ctx context.Context, l DeadLetter) error {
	op := fmt.Sprintf("events: release retry of dead letter %s of group %s", l.EventID, l.Group)
	_, err := store.UpdateRows(ctx, s.db, op, "UPDATE event_dead_letters SET retry = 1, "+
		"leased_until = CASE WHEN retry = 0 THEN "+s.db.Dialect().Ago("1")+" END "+
		"WHERE group_name = $1 AND event_id = $2 AND leased_until = $3", l.Group, l.EventID, l.leasedUntil)
	return err
}

// lockGroup reports whether a group is registered. The lock orders transactions that add dead letters, drop them, and
// remove them with the group.
func lockGroup(ctx context.Context, c store.Conn, group string) (registered bool, err error) {
	return store.Exists(ctx, c, "SELECT 1 FROM event_groups WHERE name = $1"+c.Dialect().ForUpdate, group)
}

// RemoveDeadLetter deletes a dead letter after its event was handled. It is idempotent.
func (s *Store) RemoveDeadLetter(ctx context.Context, group, eventID string) error {
	op := fmt.Sprintf("events: remove dead letter %s of group %s", eventID, group)
	const remove = "DELETE FROM event_dead_letters WHERE group_name = $1 AND event_id = $2"
	_, err := store.UpdateRows(ctx, s.db, op, remove, group, eventID)
	return err
}

// DeadLetterQuery selects dead letters of a group.
type DeadLetterQuery struct {
	Group string
	After string // higher event ids only
	Limit int    // see store.PageSize
}

const deadLetterColumns = "group_name, event_id, position, body, reason, deliveries, died_at, " +
	"CASE WHEN retry = 1 OR leased_until > %s THEN 1 ELSE 0 END, leased_until"

func scanDeadLetter(row store.Scanner) (l DeadLetter, err error) {
	err = row.Scan(&l.Group, &l.EventID, &l.Position, &l.Body, &l.Reason, &l.Deliveries, store.Time(&l.DiedAt),
		&l.Retrying, store.Time(&l.leasedUntil))
	return l, err
}

// DeadLetters returns one page of a group's dead letters, by event id.
func (s *Store) DeadLetters(ctx context.Context, q DeadLetterQuery) ([]DeadLetter, error) {
	var f store.Filter
	f.Add("group_name = ?", q.Group)
	f.Add("event_id > ?", q.After)
	page := f.Page("event_id", q.Limit)
	return store.ViewRows(ctx, s.db, "events: dead letters of group "+q.Group, scanDeadLetter,
		"SELECT "+fmt.Sprintf(deadLetterColumns, s.db.Dialect().Now)+" FROM event_dead_letters"+page, f.Args...)
}

// CountDeadLetters returns the number of dead letters by group, without groups that have none.
func (s *Store) CountDeadLetters(ctx context.Context) (map[string]int64, error) {
	const op = "events: count dead letters"
	return store.Value(ctx, s.db.View, op, func(ctx context.Context, c store.Conn) (map[string]int64, error) {
		const query = "SELECT group_name, count(*) FROM event_dead_letters GROUP BY group_name"
		return store.SelectMap[string, int64](ctx, c, query)
	})
}

// The actions of the action log about dead letters and groups.
const (
	retriedDead  = "event.retry"
	droppedDead  = "event.drop"
	removedGroup = "group.remove"
)

// RetryDeadLetter requests that a consumer handles a dead letter again, and logs it with the actor and the reason of
// the context. It is idempotent: a dead letter that no longer exists after its retry is a success. Error:
// ErrNoDeadLetter.
func (s *Store) RetryDeadLetter(ctx context.Context, group, eventID string) error {
	request := "UPDATE event_dead_letters SET retry = 1, leased_until = CASE WHEN leased_until > " + s.db.Dialect().Now +
		" THEN leased_until END WHERE group_name = $1 AND event_id = $2 AND retry = 0"
	return s.changeDeadLetter(ctx, retriedDead, group, eventID, request, nil)
}

// DropDeadLetter deletes a dead letter, and logs it with the actor and the reason of the context. It is idempotent.
// Errors: ErrNoDeadLetter; a *store.RefusedError while it is being retried.
func (s *Store) DropDeadLetter(ctx context.Context, group, eventID string) error {
	drop := `DELETE FROM event_dead_letters WHERE group_name = $1 AND event_id = $2
		AND (leased_until IS NULL OR leased_until < ` + s.db.Dialect().Now + ")"
	retrying := store.Refused("The dead event is being retried. Repeat the request when the retry has ended.")
	return s.changeDeadLetter(ctx, droppedDead, group, eventID, drop, retrying)
}

// changeDeadLetter runs a statement and, if it changed the dead letter, logs the action. If the dead letter exists and
// was not changed, changeDeadLetter returns its last parameter. If the dead letter does not exist, it returns nil if an
// earlier call with this action settled it, and ErrNoDeadLetter otherwise.
func (s *Store) changeDeadLetter(ctx context.Context, action, group, eventID, statement string, unchanged error) error {
	op := fmt.Sprintf("events: %s %s of group %s", action, eventID, group)
	return s.db.Update(ctx, op, func(ctx context.Context, c store.Conn) error {
		if _, err := lockGroup(ctx, c, group); err != nil {
			return err
		}
		n, err := c.Exec(ctx, statement, group, eventID)
		if err != nil {
			return err
		}
		if n > 0 {
			return store.AppendLog(ctx, c, action, eventID, detailOf(group))
		}
		const find = "SELECT 1 FROM event_dead_letters WHERE group_name = $1 AND event_id = $2"
		exists, err := store.Exists(ctx, c, find, group, eventID)
		if err != nil {
			return err
		}
		if exists {
			return unchanged
		}
		last, err := lastSettled(ctx, c, group, eventID)
		if err == nil && last != action {
			err = ErrNoDeadLetter
		}
		return err
	})
}

// detailOf begins the detail of a log entry about a dead letter of a group. A reason follows after a colon.
func detailOf(group string) string { return "group " + group }

// lastSettled returns the last action that settled a dead letter, or that removed its group with all of them; "" if
// there was none.
func lastSettled(ctx context.Context, c store.Conn, group, eventID string) (last string, err error) {
	err = c.Query(ctx, func(row store.Scanner) error {
		var action, detail string
		err := row.Scan(&action, &detail)
		of, _, _ := strings.Cut(detail, ":")
		if action == removedGroup || of == detailOf(group) {
			last = action
		}
		return err
	}, "SELECT action, detail FROM admin_log WHERE target = $1 AND action IN ($2, $3) OR target = $4 AND action = $5 "+
		"ORDER BY id", eventID, retriedDead, droppedDead, group, removedGroup)
	return last, err
}

// LeaseRetry leases the first dead letter of a group with a requested retry, by position; nil: there is none. A lease
// that expires makes the dead letter available once more. The second lease ends the request, because the dead letter
// may crash its consumers.
func (s *Store) LeaseRetry(ctx context.Context, group string, lease time.Duration) (leased *DeadLetter, err error) {
	op := "events: lease a retry of group " + group
	requested := func(c store.Conn) string {
		return "SELECT event_id FROM event_dead_letters WHERE retry = 1 AND group_name = $1 AND " +
			"(leased_until IS NULL OR leased_until < " + c.Dialect().Now + ") ORDER BY position LIMIT 1"
	}
	_, err = s.db.UpdateIf(ctx, op, func(ctx context.Context, c store.Conn) (bool, error) {
		return store.Exists(ctx, c, requested(c), group)
	}, func(ctx context.Context, c store.Conn) error {
		d := c.Dialect()
		letters, err := store.Select(ctx, c, scanDeadLetter, "WITH due AS MATERIALIZED ("+requested(c)+d.SkipLocked+
			") UPDATE event_dead_letters SET retry = CASE WHEN leased_until IS NULL THEN 1 ELSE 0 END, leased_until = "+
			d.Ago("$2")+" WHERE group_name = $1 AND event_id IN (SELECT event_id FROM due) RETURNING "+
			fmt.Sprintf(deadLetterColumns, d.Now), group, -lease.Milliseconds())
		if len(letters) > 0 {
			leased = &letters[0]
		}
		return err
	})
	return leased, err
}

// HasDeadLettersOf reports whether a group has dead letters of a sale's events.
func (s *Store) HasDeadLettersOf(ctx context.Context, saleID string) (bool, error) {
	query := "SELECT 1 FROM event_dead_letters WHERE " + s.db.Dialect().Contains("body", "$1") + " LIMIT 1"
	found, err := store.ViewRows(ctx, s.db, "events: dead letters of sale "+saleID, store.Column[int], query,
		`"sale_id":"`+saleID+`"`)
	return len(found) > 0, err
}
