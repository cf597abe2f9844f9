package adminhttp

import (
	"context"
	"errors"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/recovery/rebuild"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

var errRebuildBusy = httpserver.NewProblem(problem.Conflict, "A rebuild is already running.")

// rebuildTimeout bounds a rebuild that an admin started.
const rebuildTimeout = 30 * time.Minute

// startRebuild starts a rebuild of one sale, or of all sales, and returns as soon as the rebuild has a fence or has
// ended.
func (h *handlers) startRebuild(ctx context.Context, c *fiber.Ctx, actor string) error {
	body, err := httpserver.ReadObject(c)
	if err != nil {
		return err
	}
	saleID := body.Text("sale")
	if saleID != "" && sale.ValidateID(saleID) != nil {
		body.Reject("sale", "must be the id of a sale")
	}
	body.RejectUnknown()
	if err := body.Err(); err != nil {
		return err
	}
	var only []string
	if saleID != "" {
		if _, err := h.cfg.Admin.Show(ctx, saleID); err != nil {
			return err
		}
		only = []string{saleID}
	}
	before := h.cfg.Rebuilder.Status()
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rebuildTimeout)
		defer cancel()
		err := h.cfg.Rebuilder.Run(ctx, only...)
		if err != nil && !errors.Is(err, rebuild.ErrBusy) {
			h.Log().Error("rebuild failed", "actor", actor, "sale", saleID, "err", err)
		}
		ended <- err
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if errors.Is(err, rebuild.ErrBusy) {
				return errRebuildBusy
			}
			if err != nil {
				return saleProblem(err, httpserver.ErrConflict)
			}
			return httpserver.SendJSON(c, fiber.StatusAccepted, h.cfg.Rebuilder.Status())
		case <-ctx.Done():
			return httpserver.ErrUnavailable
		case <-tick.C:
			if s := h.cfg.Rebuilder.Status(); s.Fence != before.Fence {
				return httpserver.SendJSON(c, fiber.StatusAccepted, s)
			}
		}
	}
}

func (h *handlers) showRebuild(_ context.Context, c *fiber.Ctx, _ string) error {
	return httpserver.SendJSON(c, fiber.StatusOK, h.cfg.Rebuilder.Status())
}
