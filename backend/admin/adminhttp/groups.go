package adminhttp

import (
	"context"

	"sluice/backend/events"
	"sluice/backend/web/httpserver"
)

func (h *handlers) addGroups() {
	const one = "/admin/v1/groups/:group"
	h.get("/admin/v1/groups", h.listGroups)
	h.post(one+"/remove", withReason((*request).group, h.removeGroup))
	h.get(one+"/dead", with((*request).group, h.listDeadEvents))
	h.post(one+"/dead/:event/retry", settleDeadEvent("retrying", h.cfg.Events.Retry))
	h.post(one+"/dead/:event/cancel", settleDeadEvent("dropped", h.cfg.Events.Drop))
}

func (h *handlers) listGroups(ctx context.Context, _ *request) (any, error) {
	return h.cfg.Events.Status(ctx)
}

// group returns the group of the path. It accepts names that no consumer can have, because a group may have been
// created by hand.
func (r *request) group() string { return r.param("group", errNoGroup) }

func (h *handlers) removeGroup(ctx context.Context, _ *request, name string) (any, error) {
	err := h.cfg.Events.Remove(ctx, name)
	return map[string]string{"name": name, "status": "removed"}, err
}

func (h *handlers) listDeadEvents(ctx context.Context, r *request, group string) (any, error) {
	q := httpserver.NewQuery(r.Ctx)
	wanted := events.DeadLetterQuery{Group: group, After: q.Text("after"), Limit: q.Limit()}
	if len(wanted.After) > maxParam || !httpserver.IsStorable(wanted.After) {
		q.Reject("after", "must be the next of the previous page")
	}
	if err := q.End(); err != nil {
		return nil, err
	}
	letters, err := h.cfg.Events.DeadLetters(ctx, wanted)
	return page("dead", letters, wanted.Limit, func(last events.DeadLetter) any { return last.EventID }), err
}

// deadEvent is the event of a group in the path.
type deadEvent struct{ group, id string }

func (r *request) deadEvent() deadEvent {
	return deadEvent{r.group(), r.param("event", errNoDeadLetter)}
}

// settleDeadEvent retries or drops a dead event of a group.
func settleDeadEvent(status string, settle func(ctx context.Context, group, eventID string) error) handler {
	return withReason((*request).deadEvent, func(ctx context.Context, _ *request, of deadEvent) (any, error) {
		err := settle(ctx, of.group, of.id)
		return map[string]string{"group": of.group, "event": of.id, "status": status}, err
	})
}
