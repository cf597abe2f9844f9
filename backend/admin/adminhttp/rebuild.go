package adminhttp

import (
	"context"
	"errors"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/recovery/guard"
	"sluice/backend/store"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

var errRebuildBusy = httpserver.NewProblem(problem.Conflict, "A rebuild is running: try again when it has ended.")

// rebuildTimeout bounds a rebuild that an admin started.
const rebuildTimeout = 30 * time.Minute

// startRebuild starts a rebuild of one sale, or of all sales, and returns as soon as the rebuild has a fence or has
// ended.
func (h *handlers) startRebuild(ctx context.Context, r *request) (any, error) {
	body := r.object()
	saleID := body.Sale("sale")
	if err := r.end(body); err != nil {
		return nil, err
	}
	var only []string
	if saleID != "" {
		if _, err := h.cfg.Admin.Show(ctx, saleID); err != nil {
			return nil, orMissing(err, httpserver.ErrNoSale)
		}
		only = []string{saleID}
	}
	if !h.startsRebuild.TryLock() { // otherwise the fence below could be that of another request
		return nil, errRebuildBusy
	}
	defer h.startsRebuild.Unlock()
	before := h.cfg.Rebuilder.Status()
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rebuildTimeout)
		defer cancel()
		err := h.cfg.Rebuilder.Run(ctx, only...)
		if err != nil && !errors.Is(err, guard.ErrBusy) {
			h.Log().Error("rebuild failed", "actor", store.Actor(ctx), "sale", saleID, "err", err)
		}
		ended <- err
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for h.cfg.Rebuilder.Status().Fence == before.Fence {
		select {
		case err := <-ended:
			if errors.Is(err, guard.ErrBusy) {
				return nil, errRebuildBusy
			}
			r.Status(fiber.StatusAccepted)
			return h.cfg.Rebuilder.Status(), orMissing(err, httpserver.ErrNoSale)
		case <-ctx.Done():
			return nil, httpserver.ErrUnavailable
		case <-tick.C:
		}
	}
	r.Status(fiber.StatusAccepted)
	return h.cfg.Rebuilder.Status(), nil
}

func (h *handlers) showRebuild(context.Context, *request) (any, error) {
	return h.cfg.Rebuilder.Status(), nil
}
