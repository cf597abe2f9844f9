package api

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
)

// deadBody is a dead letter. order_id, sale_id and buyer are empty for a text that is no message, which raw then shows.
type deadBody struct {
	Key        string        `json:"key"` // what retry and cancel take: the order id, or raw:... for a text that is no message
	OrderID    string        `json:"order_id,omitempty"`
	SaleID     string        `json:"sale_id,omitempty"`
	Buyer      string        `json:"buyer,omitempty"`
	Message    string        `json:"message,omitempty"` // as it travels: order id, sale, place of the buyer, serial, buyer
	Raw        string        `json:"raw,omitempty"`
	Reason     string        `json:"reason"`
	Attempts   int           `json:"attempts"` // the length of history
	History    []attemptBody `json:"history"`
	Crashes    int           `json:"crashes"`
	DiedAt     time.Time     `json:"died_at"`
	Cancelling bool          `json:"cancelling"`
	Units      int           `json:"units"`    // of the stock that it still holds
	Unbacked   bool          `json:"unbacked"` // it holds no unit: Redis had lost the order, and others had its unit or its buyer's place
}

type attemptBody struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

func deadJSON(d queue.DeadLetter) deadBody {
	b := deadBody{
		Key: d.Key, Raw: strings.ToValidUTF8(string(d.Raw), "\uFFFD"), Reason: d.Reason, Attempts: len(d.History), History: make([]attemptBody, len(d.History)),
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

func (o *operator) listDead(ctx context.Context, c *fiber.Ctx, _ string) error {
	q, err := deadQuery(c)
	if err != nil {
		return err
	}
	page, next, err := o.cfg.Desk.Dead(ctx, q)
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
	return sendJSON(c, fiber.StatusOK, body)
}

func (o *operator) showDead(ctx context.Context, c *fiber.Ctx, _ string) error {
	id, err := orderParam(c)
	if err != nil {
		return err
	}
	letter, err := o.cfg.Desk.DeadLetter(ctx, id)
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, deadJSON(letter))
}

func deadQuery(c *fiber.Ctx) (queue.DeadQuery, error) {
	q := newQuery(c)
	wanted := queue.DeadQuery{
		SaleID: q.sale(), After: q.text("after"), Limit: q.limit(), ErrorContains: q.search("because"), DiedAfter: q.instant("died_after"), DiedBefore: q.instant("died_before"),
	}
	return wanted, q.err()
}

func (o *operator) retryDead(ctx context.Context, c *fiber.Ctx, actor string) error {
	id, err := orderParam(c)
	if err != nil {
		return err
	}
	reason, err := remark(c, "reason")
	if err != nil {
		return err
	}
	if err := o.cfg.Desk.Retry(store.WithReason(ctx, reason), actor, id); err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, settledBody{Key: id.String(), OrderID: id.String(), Status: string(sale.StatusQueued)})
}

// settledBody says what has become of a dead letter.
type settledBody struct {
	Key       string `json:"key"`
	OrderID   string `json:"order_id,omitempty"`
	SaleID    string `json:"sale_id,omitempty"`
	Status    string `json:"status"`
	GivenBack bool   `json:"given_back"` // its unit is on sale again
}

const maxReason = 200

func (o *operator) cancelDead(ctx context.Context, c *fiber.Ctx, actor string) error {
	reason, err := remark(c, "reason")
	if err != nil {
		return err
	}
	if key, ok := rawKey(c.Params("order")); ok {
		if err := o.cfg.Desk.Drop(store.WithReason(ctx, reason), actor, key); err != nil {
			return err
		}
		return sendJSON(c, fiber.StatusOK, settledBody{Key: key, Status: "dropped"})
	}
	id, err := orderParam(c)
	if err != nil {
		return err
	}
	done, err := o.cfg.Desk.Cancel(ctx, actor, id, reason)
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, settledBody{
		Key: id.String(), OrderID: id.String(), SaleID: done.Order.SaleID, Status: string(done.Order.Status), GivenBack: done.GivenBack,
	})
}

// rawKey recognises the key of a text that is no message. Some clients escape its colon.
func rawKey(param string) (key string, ok bool) {
	key, err := url.PathUnescape(param)
	if err != nil || len(key) > 100 || !strings.HasPrefix(key, "raw:") {
		return "", false
	}
	return strings.Clone(key), true
}
