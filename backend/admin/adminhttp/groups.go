package adminhttp

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
)

type groupBody struct {
	Name             string  `json:"name"`
	Known            bool    `json:"known"` // false: created in Redis by hand
	Lag              int64   `json:"lag"`
	Pending          int64   `json:"pending"`
	Consumers        int64   `json:"consumers"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	Dead             int64   `json:"dead"`
}

func (h *handlers) addGroups() {
	h.handle(fiber.MethodGet, "/admin/v1/groups", h.listGroups)
	h.handle(fiber.MethodPost, "/admin/v1/groups/:group/remove", h.removeGroup)
	h.handle(fiber.MethodGet, "/admin/v1/groups/:group/dead", h.listDeadEvents)
	h.handle(
		fiber.MethodPost,
		"/admin/v1/groups/:group/dead/:event/retry",
		h.settleDeadEvent("retrying", h.cfg.Events.Retry),
	)
	h.handle(
		fiber.MethodPost,
		"/admin/v1/groups/:group/dead/:event/cancel",
		h.settleDeadEvent("dropped", h.cfg.Events.Drop),
	)
}

func (h *handlers) listGroups(ctx context.Context, c *fiber.Ctx, _ string) error {
	s, err := h.cfg.Events.Status(ctx)
	if err != nil {
		return err
	}
	body := struct {
		Stream           int64       `json:"stream_entries"`
		UnrelayedSeconds float64     `json:"unrelayed_seconds"`
		Groups           []groupBody `json:"groups"`
	}{s.Stream, s.Unrelayed.Seconds(), make([]groupBody, len(s.Groups))}
	for i, g := range s.Groups {
		body.Groups[i] = groupBody{g.Name, g.Known, g.Lag, g.Pending, g.Consumers, g.Oldest.Seconds(), g.Dead}
	}
	return httpserver.SendJSON(c, fiber.StatusOK, body)
}

// groupParam returns the group of the path. It accepts names that no consumer can have, because a group may have been
// created by hand.
func groupParam(c *fiber.Ctx) (string, error) {
	name, err := url.PathUnescape(c.Params("group"))
	if err != nil || name == "" || len(name) > 200 {
		return "", httpserver.Invalid("group", "must be the name of a consumer group")
	}
	return strings.Clone(name), nil
}

func (h *handlers) removeGroup(ctx context.Context, c *fiber.Ctx, actor string) error {
	name, err := groupParam(c)
	if err != nil {
		return err
	}
	reason, err := httpserver.ReadLine(c, "reason")
	if err != nil {
		return err
	}
	if err := h.cfg.Events.Remove(ctx, actor, name, reason); err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, map[string]string{"name": name, "status": "removed"})
}

type deadEventBody struct {
	Event      string    `json:"event"`
	Position   int64     `json:"position"`
	Body       string    `json:"body"`
	Reason     string    `json:"reason"`
	Deliveries int64     `json:"deliveries"`
	DiedAt     time.Time `json:"died_at"`
	Retrying   bool      `json:"retrying"`
}

func (h *handlers) listDeadEvents(ctx context.Context, c *fiber.Ctx, _ string) error {
	name, err := groupParam(c)
	if err != nil {
		return err
	}
	q := httpserver.NewQuery(c)
	wanted := events.DeadLetterQuery{Group: name, After: q.Text("after"), Limit: q.Limit()}
	if len(wanted.After) > maxEventID || !httpserver.IsStorable(wanted.After) {
		q.Reject("after", "must be the next of the previous page")
	}
	if err := q.Err(); err != nil {
		return err
	}
	letters, err := h.cfg.Events.DeadLetters(ctx, wanted)
	if err != nil {
		return err
	}
	body := struct {
		Dead []deadEventBody `json:"dead"`
		Next string          `json:"next,omitempty"` // the after of the next page
	}{Dead: make([]deadEventBody, len(letters))}
	for i, l := range letters {
		body.Dead[i] = deadEventBody{l.EventID, l.Position, l.Body, l.Reason, l.Deliveries, l.DiedAt, l.Retrying}
	}
	if len(letters) == wanted.Limit {
		body.Next = letters[len(letters)-1].EventID
	}
	return httpserver.SendJSON(c, fiber.StatusOK, body)
}

const maxEventID = 200

// settleDeadEvent retries or drops a dead event of a group.
func (h *handlers) settleDeadEvent(
	status string, settle func(ctx context.Context, actor, group, eventID, reason string) error,
) handler {
	return func(ctx context.Context, c *fiber.Ctx, actor string) error {
		name, err := groupParam(c)
		if err != nil {
			return err
		}
		id, err := url.PathUnescape(c.Params("event"))
		if err != nil || id == "" || len(id) > maxEventID || !httpserver.IsStorable(id) {
			return sale.ErrNotFound
		}
		id = strings.Clone(id)
		reason, err := httpserver.ReadLine(c, "reason")
		if err != nil {
			return err
		}
		if err := settle(ctx, actor, name, id, reason); err != nil {
			return err
		}
		return httpserver.SendJSON(c, fiber.StatusOK, map[string]string{"group": name, "event": id, "status": status})
	}
}
