package adminhttp

import (
	"context"

	"sluice/backend/store"
	"sluice/backend/web/httpserver"
)

// listLog is GET /admin/v1/log, newest first.
func (h *handlers) listLog(ctx context.Context, r *request) (any, error) {
	q := httpserver.NewQuery(r.Ctx)
	wanted := store.LogQuery{
		Target: q.Line("target"), Actor: q.Line("actor"), Action: q.Line("action"), SaleID: q.Sale(),
		Before: q.Number("before"), Limit: q.Limit(),
	}
	if err := q.End(); err != nil {
		return nil, err
	}
	entries, err := h.cfg.Store.Log(ctx, wanted)
	return page("log", entries, wanted.Limit, func(last store.LogEntry) any { return last.Number }), err
}
