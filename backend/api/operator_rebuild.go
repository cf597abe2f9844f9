package api

import (
	"context"
	"errors"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/recovery/rebuild"
	"sluice/backend/sale"
	"sluice/internal/problem"
)

// Rebuilder makes Redis anew from what is certain (rebuild.Rebuilder).
type Rebuilder interface {
	Run(ctx context.Context, only ...string) error
	Status() rebuild.Status
}

var errRebuildBusy = refusalOf(problem.Conflict, "A rebuild is under way already.")

// rebuildTimeout bounds a rebuild that an operator has started.
const rebuildTimeout = 30 * time.Minute

// startRebuild begins a rebuild of the sales that are named, or of all, and does not wait for its end.
func (o *operator) startRebuild(ctx context.Context, c *fiber.Ctx, actor string) error {
	body, err := readBody(c)
	if err != nil {
		return err
	}
	saleID := body.text("sale")
	if saleID != "" && sale.ValidateID(saleID) != nil {
		body.mistake("sale", "must name a sale")
	}
	body.unknown()
	if err := body.err(); err != nil {
		return err
	}
	var only []string
	if saleID != "" {
		if _, err := o.cfg.Desk.Show(ctx, saleID); err != nil {
			return err
		}
		only = []string{saleID}
	}
	before := o.cfg.Rebuild.Status()
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rebuildTimeout)
		defer cancel()
		err := o.cfg.Rebuild.Run(ctx, only...)
		if err != nil && !errors.Is(err, rebuild.ErrBusy) {
			o.log.Error("a rebuild that an operator has started failed", "actor", actor, "sale", saleID, "err", err)
		}
		ended <- err
	}()
	// Until it has a number, or has ended: what is answered is about this one.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if errors.Is(err, rebuild.ErrBusy) {
				return errRebuildBusy
			}
			if err != nil {
				return ofSale(err, errConflict)
			}
			return sendJSON(c, fiber.StatusAccepted, o.cfg.Rebuild.Status())
		case <-ctx.Done():
			return errUnavailable
		case <-tick.C:
			if s := o.cfg.Rebuild.Status(); s.Fence != before.Fence {
				return sendJSON(c, fiber.StatusAccepted, s)
			}
		}
	}
}

func (o *operator) showRebuild(_ context.Context, c *fiber.Ctx, _ string) error {
	return sendJSON(c, fiber.StatusOK, o.cfg.Rebuild.Status())
}
