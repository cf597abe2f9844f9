package api

import (
	"context"
	"errors"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admin"
	"sluice/backend/sale"
)

// settleAllBody is what became of one page of dead orders.
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
	Because   string `json:"because"`         // why it died
	Status    string `json:"status"`          // what it is now
	GivenBack bool   `json:"given_back"`      // its unit is on sale again
	Error     string `json:"error,omitempty"` // why it could not be settled
}

// maxSettled bounds one page: each order is a few round trips to both stores.
const maxSettled = 500

// settleDead retries or cancels all dead orders that a filter names.
func (o *operator) settleDead(verb admin.Verb) operatorHandler {
	return func(ctx context.Context, c *fiber.Ctx, actor string) error {
		s, err := readSettlement(c)
		if err != nil {
			return err
		}
		s.Verb = verb
		done, next, err := o.cfg.Desk.Settle(ctx, actor, s)
		if err != nil {
			return err
		}
		body := settleAllBody{DryRun: s.DryRun, Orders: make([]settledOneBody, len(done)), Next: next}
		for i, d := range done {
			m := d.Letter.Message
			one := settledOneBody{OrderID: m.ID.String(), SaleID: m.SaleID, Buyer: m.Buyer, Because: d.Letter.Reason, Status: string(d.Status), GivenBack: d.GivenBack}
			switch {
			case d.Err == nil:
				body.Done++
			case errors.Is(d.Err, sale.ErrNotFound):
				body.Failed++
				one.Error = "somebody else has settled it"
			default:
				body.Failed++
				one.Error = d.Err.Error()
			}
			body.Orders[i] = one
		}
		return sendJSON(c, fiber.StatusOK, body)
	}
}

func readSettlement(c *fiber.Ctx) (admin.Settlement, error) {
	body, err := readBody(c)
	if err != nil {
		return admin.Settlement{}, err
	}
	s := admin.Settlement{
		Filter: admin.DeadFilter{
			SaleID: body.text("sale"), Because: body.remark("because"), DiedAfter: body.instant("died_after"), DiedBefore: body.instant("died_before"),
		},
		Reason: body.remark("reason"), DryRun: body.flag("dry_run"), After: body.text("after"), Limit: 100,
	}
	if s.Filter.SaleID != "" {
		if err := sale.ValidateID(s.Filter.SaleID); err != nil {
			body.mistake("sale", err.Error())
		}
	}
	if n, ok := body.integer("limit"); ok {
		if n < 1 || n > maxSettled {
			body.mistake("limit", "must be between 1 and 500")
		}
		s.Limit = int(n)
	}
	if all := body.flag("all"); !all && s.Filter == (admin.DeadFilter{}) {
		body.mistake("all", "must be true where nothing else says which orders are meant")
	}
	body.unknown()
	return s, body.err()
}
