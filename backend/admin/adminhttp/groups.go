package adminhttp

import (
	"context"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
)

func (h *handlers) addGroups() {
	const one = "/admin/v1/groups/:group"
	h.get("/admin/v1/groups", h.listGroups)
	h.post(one+"/remove", h.removeGroup)
	h.get(one+"/dead", h.listDeadEvents)
	h.post(one+"/dead/:event/retry", h.settleDeadEvent("retrying", h.cfg.Events.Retry))
	h.post(one+"/dead/:event/cancel", h.settleDeadEvent("dropped", h.cfg.Events.Drop))
}

func (h *handlers) listGroups(ctx context.Context, _ *request) (any, error) {
	return h.cfg.Events.Status(ctx)
}

// group returns the group of the path. It accepts names that no consumer can have, because a group may have been
// created by hand.
func (r *request) group() string { return r.param("group", errNoGroup) }

func (h *handlers) removeGroup(ctx context.Context, r *request) (any, error) {
	name, reason := r.group(), r.reason()
	if r.err != nil {
		return nil, r.err
	}
	err := h.cfg.Events.Remove(ctx, r.actor, name, reason)
	return map[string]string{"name": name, "status": "removed"}, err
}

func (h *handlers) listDeadEvents(ctx context.Context, r *request) (any, error) {
	q := httpserver.NewQuery(r.Ctx)
	wanted := events.DeadLetterQuery{Group: r.group(), After: q.Text("after"), Limit: q.Limit()}
	if len(wanted.After) > maxParam || !httpserver.IsStorable(wanted.After) {
		q.Reject("after", "must be the next of the previous page")
	}
	if r.fail(q.End()); r.err != nil {
		return nil, r.err
	}
	letters, err := h.cfg.Events.DeadLetters(ctx, wanted)
	return page("dead", letters, wanted.Limit, func(last events.DeadLetter) any { return last.EventID }), err
}

// settleDeadEvent retries or drops a dead event of a group.
func (h *handlers) settleDeadEvent(
	status string, settle func(ctx context.Context, actor, group, eventID, reason string) error,
) handler {
	return func(ctx context.Context, r *request) (any, error) {
		group, id, reason := r.group(), r.param("event", sale.ErrNotFound), r.reason()
		if r.err != nil {
			return nil, r.err
		}
		err := settle(ctx, r.actor, group, id, reason)
		return map[string]string{"group": group, "event": id, "status": status}, err
	}
}
