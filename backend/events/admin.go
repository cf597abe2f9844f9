package events

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
)

// Admin shows the groups to admins and settles their dead letters. It is safe for concurrent use.
type Admin struct {
	client redisconn.Client
	space  keyspace.Space
	store  *Store
}

// NewAdmin returns an Admin. It does not connect to Redis.
func NewAdmin(client redisconn.Client, space keyspace.Space, db *Store) *Admin {
	return &Admin{client: client, space: space, store: db}
}

// GroupStatus is the progress of a group.
type GroupStatus struct {
	Name      string `json:"name"`
	Known     bool   `json:"known"`   // registered in SQL; the stream also waits for a group that only Redis has
	Lag       int64  `json:"lag"`     // events in the stream that have not been delivered to it
	Pending   int64  `json:"pending"` // events that were delivered to it and are not acknowledged
	Consumers int64  `json:"consumers"`
	// OldestSeconds is the age of the oldest event in the stream that it has not acknowledged; 0: there is none.
	OldestSeconds float64 `json:"oldest_age_seconds"`
	Dead          int64   `json:"dead"`
}

// Status is the state of the stream and its groups.
type Status struct {
	Stream           int64         `json:"stream_entries"`
	UnrelayedSeconds float64       `json:"unrelayed_seconds"` // age of the oldest event that is not in the stream yet
	Groups           []GroupStatus `json:"groups"`            // by name; not nil
}

// Status reads the progress of every group. Its values are not all of one instant.
func (d *Admin) Status(ctx context.Context) (Status, error) {
	known, err := d.store.Groups(ctx)
	if err != nil {
		return Status{}, err
	}
	dead, err := d.store.CountDeadLetters(ctx)
	if err != nil {
		return Status{}, err
	}
	last, err := newestPosition(ctx, d.client, d.space)
	if err != nil {
		return Status{}, err
	}
	unrelayed, err := d.store.Unrelayed(ctx, last)
	if err != nil {
		return Status{}, err
	}
	entries, err := d.client.XLen(ctx, d.space.Events()).Result()
	if err != nil {
		return Status{}, wrap("status", err)
	}
	groups, err := d.statusInRedis(ctx, last)
	if err != nil {
		return Status{}, err
	}
	for _, g := range known {
		i := slices.IndexFunc(groups, func(s GroupStatus) bool { return s.Name == g.Name })
		if i < 0 { // Redis lost it, or it was not created there yet
			i = len(groups)
			groups = append(groups, GroupStatus{Name: g.Name, Lag: max(last-g.Start, 0)})
		}
		groups[i].Known = true
	}
	for i, g := range groups {
		groups[i].Dead = dead[g.Name]
	}
	slices.SortFunc(groups, func(a, b GroupStatus) int { return strings.Compare(a.Name, b.Name) })
	return Status{Stream: entries, UnrelayedSeconds: unrelayed.Seconds(), Groups: groups}, nil
}

// statusInRedis returns the groups that Redis has; not nil. last is the position of the newest event.
func (d *Admin) statusInRedis(ctx context.Context, last int64) ([]GroupStatus, error) {
	found, err := groupsInRedis(ctx, d.client, d.space)
	if err != nil {
		return nil, err
	}
	groups := []GroupStatus{}
	for _, g := range found {
		oldest, err := d.oldest(ctx, g)
		if err != nil {
			return nil, err
		}
		groups = append(groups, GroupStatus{
			Name: g.Name, Pending: g.Pending, Consumers: g.Consumers, Lag: max(last-PositionOf(g.LastDeliveredID), 0),
			OldestSeconds: oldest.Seconds(),
		})
	}
	return groups, nil
}

// oldest returns the age of the first event that a group has not acknowledged; 0: there is none, or it is unreadable.
func (d *Admin) oldest(ctx context.Context, g redis.XInfoGroup) (time.Duration, error) {
	from := "(" + g.LastDeliveredID
	if g.Pending > 0 {
		p, err := d.client.XPending(ctx, d.space.Events(), g.Name).Result()
		if err != nil && !noGroup(err) {
			return 0, wrap("status", err)
		}
		if err == nil && p.Count > 0 {
			from = p.Lower
		}
	}
	first, err := d.client.XRangeN(ctx, d.space.Events(), from, "+", 1).Result()
	if err != nil {
		return 0, wrap("status", err)
	}
	if len(first) == 0 {
		return 0, nil
	}
	body, _ := first[0].Values["event"].(string)
	e, err := Decode(body)
	if err != nil {
		return 0, nil //nolint:nilerr // it will be a dead letter; its age is unknown
	}
	return max(time.Since(e.At), 0), nil
}

// exists returns ErrNoGroup if no group has this name.
func (d *Admin) exists(ctx context.Context, name string) error {
	if _, err := d.store.Group(ctx, name); !isNotFound(err) {
		return err
	}
	found, err := d.inRedis(ctx, name)
	if err == nil && !found {
		err = ErrNoGroup
	}
	return err
}

// inRedis reports whether Redis has a group of this name.
func (d *Admin) inRedis(ctx context.Context, name string) (bool, error) {
	groups, err := groupsInRedis(ctx, d.client, d.space)
	return slices.ContainsFunc(groups, func(g redis.XInfoGroup) bool { return g.Name == name }), err
}

// DeadLetters returns one page of a group's dead letters. Errors: ErrNoGroup; a *sale.InvalidError for a bad name.
func (d *Admin) DeadLetters(ctx context.Context, q DeadLetterQuery) ([]DeadLetter, error) {
	if err := ValidateGroup(q.Group); err != nil {
		return nil, err
	}
	letters, err := d.store.DeadLetters(ctx, q)
	if err == nil && len(letters) == 0 {
		err = d.exists(ctx, q.Group)
	}
	return letters, err
}

// Retry requests that a consumer of the group handles a dead letter again. It is idempotent. Errors: ErrNoGroup,
// ErrNoDeadLetter, a *sale.InvalidError for a bad name.
func (d *Admin) Retry(ctx context.Context, group, eventID string) error {
	return d.settle(ctx, group, eventID, d.store.RetryDeadLetter)
}

// Drop deletes a dead letter. It is idempotent. Errors: ErrNoGroup, ErrNoDeadLetter; a *store.RefusedError while the
// dead letter is being retried; a *sale.InvalidError for a bad name.
func (d *Admin) Drop(ctx context.Context, group, eventID string) error {
	return d.settle(ctx, group, eventID, d.store.DropDeadLetter)
}

func (d *Admin) settle(
	ctx context.Context, group, eventID string, settle func(ctx context.Context, group, id string) error,
) error {
	if err := ValidateGroup(group); err != nil {
		return err
	}
	err := settle(ctx, group, eventID)
	if isNotFound(err) && errors.Is(d.exists(ctx, group), ErrNoGroup) {
		return ErrNoGroup
	}
	return err
}

// Remove deletes a group, its dead letters and its unacknowledged events; the stream no longer waits for it. A running
// consumer of the group ends with ErrRemoved. It is idempotent. Error: ErrNoGroup.
func (d *Admin) Remove(ctx context.Context, group string) error {
	if strings.ContainsAny(group, "\x00\n") || group == "" {
		return ErrNoGroup
	}
	inRedis, err := d.inRedis(ctx, group)
	if err != nil {
		return err
	}
	err = d.store.RemoveGroup(ctx, group, inRedis)
	if isNotFound(err) {
		return ErrNoGroup
	}
	if err != nil {
		return err
	}
	// SQL comes first: otherwise a consumer could create the group in Redis again. If it does so now, it finds that SQL no
	// longer has the group.
	return destroy(ctx, d.client, d.space, group)
}
