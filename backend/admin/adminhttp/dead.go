package adminhttp

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver"
)

// deadBody is a dead letter. order_id, sale_id and buyer are empty for an entry that is not a message; raw then holds
// its text.
type deadBody struct {
	// for retry and cancel: the order id, or raw:... for an entry that is not a message
	Key        string        `json:"key"`
	OrderID    string        `json:"order_id,omitempty"`
	SaleID     string        `json:"sale_id,omitempty"`
	Buyer      string        `json:"buyer,omitempty"`
	Message    string        `json:"message,omitempty"` // encoded: order id, sale, slot of the buyer, serial, buyer
	Raw        string        `json:"raw,omitempty"`
	Reason     string        `json:"reason"`
	Attempts   int           `json:"attempts"` // the length of history
	History    []attemptBody `json:"history"`
	Crashes    int           `json:"crashes"`
	DiedAt     time.Time     `json:"died_at"`
	Cancelling bool          `json:"cancelling"`
	Units      int           `json:"units"` // units of the stock that it holds
	// it holds no unit: Redis had lost the order and sold its unit or slot again
	Unbacked bool `json:"unbacked"`
}

type attemptBody struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

func deadJSON(d queue.DeadLetter) deadBody {
	b := deadBody{
		Key: d.Key, Raw: strings.ToValidUTF8(string(d.Raw), "\uFFFD"), Reason: d.Reason,
		Attempts: len(d.History), History: make([]attemptBody, len(d.History)),
		Crashes: d.Crashes, DiedAt: d.DiedAt.UTC(), Cancelling: d.Cancelling, Unbacked: d.Unbacked,
	}
	if d.Message.ID != 0 {
		b.OrderID, b.SaleID, b.Buyer = d.Message.ID.String(), d.Message.SaleID, d.Message.Buyer
		b.Message = keyspace.EncodeMessage(d.Message)
		if !d.Unbacked {
			b.Units = 1
		}
	}
	for i, a := range d.History {
		b.History[i] = attemptBody{a.At.UTC(), a.Reason}
	}
	return b
}

func (h *handlers) listDead(ctx context.Context, c *fiber.Ctx, _ string) error {
	q := httpserver.NewQuery(c)
	wanted := queue.DeadQuery{
		SaleID: q.Sale(), After: q.Text("after"), Limit: q.Limit(), ErrorContains: q.Line("error_contains"),
		DiedAfter: q.Time("died_after"), DiedBefore: q.Time("died_before"),
	}
	if err := q.Err(); err != nil {
		return err
	}
	page, next, err := h.cfg.Admin.Dead(ctx, wanted)
	if err != nil {
		return err
	}
	body := struct {
		Dead []deadBody `json:"dead"`
		Next string     `json:"next,omitempty"` // the after of the next page
	}{make([]deadBody, len(page)), next}
	for i, d := range page {
		body.Dead[i] = deadJSON(d)
	}
	return httpserver.SendJSON(c, fiber.StatusOK, body)
}

func (h *handlers) showDead(ctx context.Context, c *fiber.Ctx, _ string) error {
	id, err := httpserver.OrderParam(c)
	if err != nil {
		return err
	}
	letter, err := h.cfg.Admin.DeadLetter(ctx, id)
	if err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, deadJSON(letter))
}

// settledBody is the result of a retry or cancel.
type settledBody struct {
	Key       string `json:"key"`
	OrderID   string `json:"order_id,omitempty"`
	SaleID    string `json:"sale_id,omitempty"`
	Status    string `json:"status"`
	GivenBack bool   `json:"given_back"` // its unit is on sale again
}

func (h *handlers) retryDead(ctx context.Context, c *fiber.Ctx, actor string) error {
	id, err := httpserver.OrderParam(c)
	if err != nil {
		return err
	}
	reason, err := httpserver.ReadLine(c, "reason")
	if err != nil {
		return err
	}
	if err := h.cfg.Admin.Retry(store.WithReason(ctx, reason), actor, id); err != nil {
		return err
	}
	return httpserver.SendJSON(
		c,
		fiber.StatusOK,
		settledBody{Key: id.String(), OrderID: id.String(), Status: string(sale.StatusQueued)},
	)
}

func (h *handlers) cancelDead(ctx context.Context, c *fiber.Ctx, actor string) error {
	reason, err := httpserver.ReadLine(c, "reason")
	if err != nil {
		return err
	}
	if key, ok := rawKey(c.Params("order")); ok {
		if err := h.cfg.Admin.Drop(store.WithReason(ctx, reason), actor, key); err != nil {
			return err
		}
		return httpserver.SendJSON(c, fiber.StatusOK, settledBody{Key: key, Status: "dropped"})
	}
	id, err := httpserver.OrderParam(c)
	if err != nil {
		return err
	}
	done, err := h.cfg.Admin.Cancel(ctx, actor, id, reason)
	if err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, settledBody{
		Key:       id.String(),
		OrderID:   id.String(),
		SaleID:    done.Order.SaleID,
		Status:    string(done.Order.Status),
		GivenBack: done.UnitReturned,
	})
}

// rawKey returns the key of an entry that is not a message. Some clients escape its colon.
func rawKey(param string) (key string, ok bool) {
	key, err := url.PathUnescape(param)
	if err != nil || len(key) > 100 || !strings.HasPrefix(key, "raw:") {
		return "", false
	}
	return strings.Clone(key), true
}
