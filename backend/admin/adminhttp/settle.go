package adminhttp

import (
	"context"
	"errors"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admin"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
)

// settleAllBody is the result for one page of dead orders.
type settleAllBody struct {
	DryRun bool             `json:"dry_run"`
	Done   int              `json:"done"`
	Failed int              `json:"failed"`
	Orders []settledOneBody `json:"orders"`
	Next   string           `json:"next,omitempty"` // the after of the next page
}

type settledOneBody struct {
	OrderID   string `json:"order_id"`
	SaleID    string `json:"sale_id"`
	Buyer     string `json:"buyer"`
	Reason    string `json:"reason"`          // error of the last attempt
	Status    string `json:"status"`          // its status now
	GivenBack bool   `json:"given_back"`      // its unit is on sale again
	Error     string `json:"error,omitempty"` // why it was not settled
}

// maxSettled bounds one page, because each order takes several round trips to both stores.
const maxSettled = 500

// settleDead retries or cancels the dead orders that match a filter.
func (h *handlers) settleDead(verb admin.Verb) handler {
	return func(ctx context.Context, c *fiber.Ctx, actor string) error {
		s, err := readSettlement(c)
		if err != nil {
			return err
		}
		s.Verb = verb
		done, next, err := h.cfg.Admin.Settle(ctx, actor, s)
		if err != nil {
			return err
		}
		body := settleAllBody{DryRun: s.DryRun, Orders: make([]settledOneBody, len(done)), Next: next}
		for i, d := range done {
			m := d.DeadLetter.Message
			one := settledOneBody{
				OrderID: m.ID.String(), SaleID: m.SaleID, Buyer: m.Buyer,
				Reason: d.DeadLetter.Reason, Status: string(d.Status), GivenBack: d.UnitReturned,
			}
			switch {
			case d.Err == nil:
				body.Done++
			case errors.Is(d.Err, sale.ErrNotFound):
				body.Failed++
				one.Error = "it was settled by another request"
			default:
				body.Failed++
				one.Error = d.Err.Error()
			}
			body.Orders[i] = one
		}
		return httpserver.SendJSON(c, fiber.StatusOK, body)
	}
}

func readSettlement(c *fiber.Ctx) (admin.Settlement, error) {
	body, err := httpserver.ReadObject(c)
	if err != nil {
		return admin.Settlement{}, err
	}
	s := admin.Settlement{
		Filter: admin.DeadFilter{
			SaleID: body.Text("sale"), ErrorContains: body.Line("error_contains"),
			DiedAfter: body.Time("died_after"), DiedBefore: body.Time("died_before"),
		},
		Reason: body.Line("reason"), DryRun: body.Bool("dry_run"), After: body.Text("after"), Limit: 100,
	}
	if s.Filter.SaleID != "" {
		if err := sale.ValidateID(s.Filter.SaleID); err != nil {
			body.Reject("sale", err.Error())
		}
	}
	if n, ok := body.Integer("limit"); ok {
		if n < 1 || n > maxSettled {
			body.Reject("limit", "must be between 1 and 500")
		}
		s.Limit = int(n)
	}
	if all := body.Bool("all"); !all && s.Filter == (admin.DeadFilter{}) {
		body.Reject("all", "must be true if no filter is set")
	}
	body.RejectUnknown()
	return s, body.Err()
}
