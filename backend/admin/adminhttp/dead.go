package adminhttp

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sluice/backend/admin"
	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
	"sluice/client"
)

func (h *handlers) addDead() {
	const dead = "/admin/v1/dead"
	h.get(dead, h.listDead)
	h.post(dead+"/retry", h.settleDead(admin.RetryDead))
	h.post(dead+"/cancel", h.settleDead(admin.CancelDead))
	h.get(dead+"/:order", show((*request).orderID, h.findDead, deadJSON))
	h.post(dead+"/:order/retry", withReason((*request).deadKey, h.retryDead))
	h.post(dead+"/:order/cancel", withReason((*request).deadKey, h.cancelDead))
}

func deadJSON(d queue.DeadLetter) client.DeadLetter {
	b := client.DeadLetter{
		Key: d.Key, Raw: strings.ToValidUTF8(string(d.Raw), "\uFFFD"), Reason: d.Reason, Attempts: len(d.History),
		History: httpserver.Bodies(d.History, func(a queue.Attempt) client.Attempt { return client.Attempt(a) }),
		Crashes: d.Crashes, DiedAt: d.DiedAt.UTC(), Cancelling: d.Cancelling, Units: unitsOf(d), Unbacked: d.Unbacked,
	}
	if d.Message.ID != 0 {
		b.OrderID, b.SaleID, b.Buyer = d.Message.ID.String(), d.Message.SaleID, d.Message.Buyer
		b.Message = keyspace.EncodeMessage(d.Message)
	}
	return b
}

// unitsOf returns the units that a dead letter holds.
func unitsOf(d queue.DeadLetter) int {
	if d.Message.ID == 0 || d.Unbacked {
		return 0
	}
	return 1
}

func (h *handlers) listDead(ctx context.Context, r *request) (any, error) {
	q := httpserver.NewQuery(r.Ctx)
	wanted := queue.DeadQuery{
		SaleID: q.Sale(), After: q.Text("after"), Limit: q.Limit(), ErrorContains: q.Line("error_contains"),
		DiedAfter: q.Time("died_after"), DiedBefore: q.Time("died_before"),
	}
	if err := q.End(); err != nil {
		return nil, err
	}
	page, err := h.cfg.Dead.List(ctx, wanted)
	return struct {
		Dead        []client.DeadLetter `json:"dead"`
		Next        string              `json:"next,omitempty"`               // value of after for the next page
		Unavailable []int               `json:"unavailable_shards,omitempty"` // their dead letters are missing
	}{httpserver.Bodies(page.Letters, deadJSON), page.Next, page.Unavailable}, err
}

func (h *handlers) findDead(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error) {
	letter, err := h.cfg.Dead.Find(ctx, id)
	return letter, orMissing(err, errNoDeadLetter)
}

// deadKey is the dead letter in the path: of an order, or of an entry that is not a message.
type deadKey struct {
	order sale.OrderID
	raw   string // empty: an order
}

// deadKey returns the dead letter of the path. Some clients escape the colon in the key of an entry.
func (r *request) deadKey() deadKey {
	key, err := url.PathUnescape(r.Params("order"))
	if err == nil && len(key) <= 100 && strings.HasPrefix(key, "raw:") {
		return deadKey{raw: strings.Clone(key)}
	}
	return deadKey{order: r.orderID()}
}

func (h *handlers) retryDead(ctx context.Context, _ *request, key deadKey) (any, error) {
	if key.raw != "" {
		return nil, sale.Invalid("order", "must be the id of an order; a raw entry can only be cancelled")
	}
	status, err := h.cfg.Dead.Retry(ctx, key.order)
	id := key.order.String()
	return client.Settled{Key: id, OrderID: id, Status: string(status)}, orMissing(err, errNoDeadLetter)
}

func (h *handlers) cancelDead(ctx context.Context, _ *request, key deadKey) (any, error) {
	if key.raw != "" {
		err := h.cfg.Dead.Drop(ctx, key.raw)
		return client.Settled{Key: key.raw, Status: string(admin.Dropped)}, orMissing(err, errNoDeadLetter)
	}
	done, err := h.cfg.Dead.Cancel(ctx, key.order)
	id := key.order.String()
	return client.Settled{
		Key: id, OrderID: id, SaleID: done.Order.SaleID, Status: string(done.Order.Status), GivenBack: done.UnitReturned,
	}, orMissing(err, errNoDeadLetter)
}

// SettledOrder is the result for one of many dead orders.
type SettledOrder struct {
	OrderID   string `json:"order_id"`
	SaleID    string `json:"sale_id"`
	Buyer     string `json:"buyer"`
	Reason    string `json:"reason"`          // error of the last attempt
	Status    string `json:"status"`          // current status
	Units     int    `json:"units"`           // units that the dead letter held
	GivenBack bool   `json:"given_back"`      // its unit is on sale again
	Error     string `json:"error,omitempty"` // why it was not settled
}

// SettledPage is the result for the dead orders that match a filter, or for a page of them.
type SettledPage struct {
	DryRun      bool           `json:"dry_run"`
	Done        int            `json:"done"`
	Failed      int            `json:"failed"`
	Orders      []SettledOrder `json:"orders"`
	DiedBefore  time.Time      `json:"died_before,omitzero"`         // value for the next page
	Next        string         `json:"next,omitempty"`               // value of after for the next page
	Unavailable []int          `json:"unavailable_shards,omitempty"` // their dead orders were not processed
}

func settledJSON(s admin.Settled) SettledOrder {
	m := s.DeadLetter.Message
	b := SettledOrder{
		OrderID: m.ID.String(), SaleID: m.SaleID, Buyer: m.Buyer, Reason: s.DeadLetter.Reason,
		Status: string(s.Status), Units: unitsOf(s.DeadLetter), GivenBack: s.UnitReturned,
	}
	if errors.Is(s.Err, sale.ErrNotFound) {
		b.Error = "it was settled by another request"
	} else if s.Err != nil {
		b.Error = s.Err.Error()
	}
	return b
}

// maxSettled bounds one page, because each order takes several round trips to both stores.
const maxSettled = 500

// settleDead retries or cancels the dead orders that match a filter.
func (h *handlers) settleDead(verb admin.Verb) handler {
	return func(ctx context.Context, r *request) (any, error) {
		body := r.object()
		ctx = takeReason(ctx, body)
		s := readSettlement(body, verb)
		if err := r.end(body); err != nil {
			return nil, err
		}
		page, err := h.cfg.Dead.Settle(ctx, s)
		failed := 0
		for _, one := range page.Orders {
			if one.Err != nil {
				failed++
			}
		}
		return SettledPage{
			s.DryRun, len(page.Orders) - failed, failed, httpserver.Bodies(page.Orders, settledJSON), page.DiedBefore.UTC(),
			page.Next, page.Unavailable,
		}, err
	}
}

func readSettlement(body *httpserver.Object, verb admin.Verb) admin.Settlement {
	filter := queue.DeadQuery{
		SaleID: body.Sale("sale"), ErrorContains: body.Line("error_contains"),
		DiedAfter: body.Time("died_after"), DiedBefore: body.Time("died_before"),
	}
	if all := body.Bool("all"); !all && filter == (queue.DeadQuery{}) {
		body.Reject("all", "must be true if no filter is set")
	}
	filter.After, filter.Limit = body.Text("after"), 100
	if n, ok := body.Integer("limit"); ok {
		if n < 1 || n > maxSettled {
			body.Reject("limit", "must be between 1 and "+strconv.Itoa(maxSettled))
		}
		filter.Limit = int(n)
	}
	return admin.Settlement{Verb: verb, DeadQuery: filter, DryRun: body.Bool("dry_run")}
}
