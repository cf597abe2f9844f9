package api

import (
	"context"
	"net/url"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// EventDesk shows the groups that read the events of orders, and does what operators decide about them (event.Desk).
type EventDesk interface {
	Status(ctx context.Context) (events.Status, error)
	Letters(ctx context.Context, q store.LetterQuery) ([]store.Letter, error)
	Retry(ctx context.Context, actor, group, eventID, reason string) error
	Drop(ctx context.Context, actor, group, eventID, reason string) error
	Remove(ctx context.Context, actor, group, reason string) error
}

type groupBody struct {
	Name             string  `json:"name"`
	Known            bool    `json:"known"` // false: made in Redis by hand
	Lag              int64   `json:"lag"`
	Pending          int64   `json:"pending"`
	Consumers        int64   `json:"consumers"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	Dead             int64   `json:"dead"`
}

func (o *operator) groups() {
	o.handle(fiber.MethodGet, "/admin/v1/groups", o.listGroups)
	o.handle(fiber.MethodPost, "/admin/v1/groups/:group/remove", o.removeGroup)
	o.handle(fiber.MethodGet, "/admin/v1/groups/:group/dead", o.listLetters)
	o.handle(fiber.MethodPost, "/admin/v1/groups/:group/dead/:event/retry", o.settleLetter("retrying", o.cfg.Events.Retry))
	o.handle(fiber.MethodPost, "/admin/v1/groups/:group/dead/:event/cancel", o.settleLetter("dropped", o.cfg.Events.Drop))
}

func (o *operator) listGroups(ctx context.Context, c *fiber.Ctx, _ string) error {
	s, err := o.cfg.Events.Status(ctx)
	if err != nil {
		return err
	}
	body := struct {
		Stream        int64       `json:"stream_entries"`
		UntoldSeconds float64     `json:"untold_seconds"`
		Groups        []groupBody `json:"groups"`
	}{s.Stream, s.Untold.Seconds(), make([]groupBody, len(s.Groups))}
	for i, g := range s.Groups {
		body.Groups[i] = groupBody{g.Name, g.Known, g.Lag, g.Pending, g.Consumers, g.Oldest.Seconds(), g.Dead}
	}
	return sendJSON(c, fiber.StatusOK, body)
}

// groupParam is the group of the path. It may be one that no consumer can have: somebody may have made it by hand.
func groupParam(c *fiber.Ctx) (string, error) {
	name, err := url.PathUnescape(c.Params("group"))
	if err != nil || name == "" || len(name) > 200 {
		return "", mistake("group", "must be the name of a group")
	}
	return string([]byte(name)), nil
}

func (o *operator) removeGroup(ctx context.Context, c *fiber.Ctx, actor string) error {
	name, err := groupParam(c)
	if err != nil {
		return err
	}
	reason, err := remark(c, "reason")
	if err != nil {
		return err
	}
	if err := o.cfg.Events.Remove(ctx, actor, name, reason); err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, map[string]string{"name": name, "status": "removed"})
}

type letterBody struct {
	Event      string    `json:"event"`
	Position   int64     `json:"position"`
	Body       string    `json:"body"`
	Reason     string    `json:"reason"`
	Deliveries int64     `json:"deliveries"`
	DiedAt     time.Time `json:"died_at"`
	Retrying   bool      `json:"retrying"`
}

func (o *operator) listLetters(ctx context.Context, c *fiber.Ctx, _ string) error {
	name, err := groupParam(c)
	if err != nil {
		return err
	}
	q := newQuery(c)
	wanted := store.LetterQuery{Group: name, After: q.text("after"), Limit: q.limit()}
	if len(wanted.After) > maxEventID || !isStorable(wanted.After) {
		q.bad.Add("after", "must be the next of the page before")
	}
	if err := q.err(); err != nil {
		return err
	}
	letters, err := o.cfg.Events.Letters(ctx, wanted)
	if err != nil {
		return err
	}
	body := struct {
		Dead []letterBody `json:"dead"`
		Next string       `json:"next,omitempty"` // the after of the next page
	}{Dead: make([]letterBody, len(letters))}
	for i, l := range letters {
		body.Dead[i] = letterBody{l.EventID, l.Position, l.Body, l.Reason, l.Deliveries, l.DiedAt, l.Retrying}
	}
	if len(letters) == wanted.Limit {
		body.Next = letters[len(letters)-1].EventID
	}
	return sendJSON(c, fiber.StatusOK, body)
}

const maxEventID = 200

func (o *operator) settleLetter(status string, do func(ctx context.Context, actor, group, eventID, reason string) error) operatorHandler {
	return func(ctx context.Context, c *fiber.Ctx, actor string) error {
		name, err := groupParam(c)
		if err != nil {
			return err
		}
		id, err := url.PathUnescape(c.Params("event"))
		if err != nil || id == "" || len(id) > maxEventID || !isStorable(id) {
			return sale.ErrNotFound
		}
		id = string([]byte(id))
		reason, err := remark(c, "reason")
		if err != nil {
			return err
		}
		if err := do(ctx, actor, name, id, reason); err != nil {
			return err
		}
		return sendJSON(c, fiber.StatusOK, map[string]string{"group": name, "event": id, "status": status})
	}
}
