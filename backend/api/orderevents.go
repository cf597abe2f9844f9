package api

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

const (
	// initialOrders is how many of the buyer's orders a new stream reports.
	initialOrders = 50
	// maxLastEventID is the longest Last-Event-ID that is looked up, in bytes.
	maxLastEventID = 64
	// maxReported bounds the orders whose last status a stream remembers.
	maxReported = 1000
)

var (
	errPagesFull = httpserver.NewProblem(problem.Unavailable,
		"Too many pages are open. Please poll the order every few seconds instead: GET /v1/orders/{order}.")
	errManyPages = rateLimited("pages", "You have too many pages open. "+
		"Please close some, or poll the order every few seconds instead: GET /v1/orders/{order}.")
)

// myEvents is GET /v1/me/events.
func (h *handlers) myEvents(c *fiber.Ctx) error { return h.sendOrders(c, 0) }

// orderEvents is GET /v1/orders/{order}/events.
func (h *handlers) orderEvents(c *fiber.Ctx) error {
	id, err := httpserver.OrderParam(c)
	if err != nil {
		return err
	}
	return h.sendOrders(c, id)
}

// sendOrders answers with the status changes of one order of the buyer, or of all if only is 0.
func (h *handlers) sendOrders(c *fiber.Ctx, only sale.OrderID) error {
	buyer, expires, err := h.buyerUntil(c)
	if err != nil {
		return err
	}
	if h.cfg.Live == nil {
		return httpserver.ErrUnavailable
	}
	after := string(c.Context().Request.Header.Peek("Last-Event-ID"))
	if len(after) > maxLastEventID {
		after = ""
	}
	// The page receives events from here on. The current state is read afterwards, so that no change between the two is
	// missed.
	page, missed, known, err := h.cfg.Live.Open(h.reads.next(), buyer, after)
	switch {
	case errors.Is(err, notify.ErrFull):
		return h.PollInstead(errPagesFull)
	case errors.Is(err, notify.ErrTooMany):
		return h.PollInstead(errManyPages)
	case err != nil:
		return err
	}
	s := &orderStream{handlers: h, page: page, buyer: buyer, only: only, reported: map[sale.OrderID]int{}}
	if err := s.begin(missed, known); err != nil {
		page.Close()
		return err
	}
	lifetime := expires.Sub(h.Now())
	return h.SendEvents(c, httpserver.Heartbeat, page.Close, func(e *httpserver.EventStream) { s.run(e, lifetime) })
}

// orderStream writes the events of one page. It ends when the client disconnects or reads too slowly, when the token
// expires, and when the server drains.
type orderStream struct {
	*handlers
	page  *notify.Page
	buyer string
	only  sale.OrderID // 0: all orders of the buyer

	first    []sale.Order
	queued   bool                 // the order was in the queue when the stream began
	reported map[sale.OrderID]int // rank of the last reported status
}

func orderOf(e events.Event) sale.Order {
	return sale.Order{ID: e.OrderID, SaleID: e.SaleID, Status: e.Status()}
}

// begin collects the first updates: the events that the page has missed or, if they are not known, the current status
// of the orders. It also checks that the order belongs to the buyer.
func (s *orderStream) begin(missed []events.Event, known bool) error {
	if s.only != 0 {
		o, err := s.findOrder(nil, s.cfg.Orders.Order, s.buyer, s.only)
		if err != nil {
			return err
		}
		s.queued = o.Status == sale.StatusQueued
		if !known {
			s.first = []sale.Order{o}
		}
	} else if !known {
		var err error
		if s.first, err = s.cfg.Orders.OrdersOfBuyer(s.reads.next(), s.buyer, initialOrders); err != nil {
			return err
		}
	}
	for _, e := range missed {
		s.first = append(s.first, orderOf(e))
	}
	return nil
}

func (s *orderStream) run(e *httpserver.EventStream, lifetime time.Duration) {
	var final <-chan struct{}
	if s.queued { // an order that becomes a dead letter causes no event
		if a := s.waiters.enter(s.only); a != nil {
			defer s.waiters.leave(a)
			final = a.final
		}
	}
	expired := time.NewTimer(max(lifetime, 0))
	defer expired.Stop()
	e.Retry()
	for _, o := range s.first {
		s.write(e, o)
	}
	s.first = nil
	for e.Flush() == nil {
		select {
		case event := <-s.page.Events():
			s.write(e, orderOf(event))
			for range len(s.page.Events()) { // the waiting events are sent in the same Flush
				s.write(e, orderOf(<-s.page.Events()))
			}
		case <-final:
			final = nil
			if o, err := s.findOrder(nil, s.cfg.Orders.Order, s.buyer, s.only); err == nil {
				s.write(e, o)
			}
		case <-e.Beats:
			if !e.Beat() {
				return
			}
		case <-s.page.Cut():
			return
		case <-expired.C:
			return
		case <-e.Done:
			return
		}
	}
}

// rank numbers the statuses in the order in which an order can have them. An order never returns to an earlier status,
// so an update with a lower rank is outdated.
var rank = map[sale.Status]int{
	sale.StatusQueued: 1, sale.StatusDead: 2, sale.StatusCreated: 3, sale.StatusPaid: 4, sale.StatusCancelled: 5,
}

// write sends the status of an order unless this status or a later one was sent before.
func (s *orderStream) write(e *httpserver.EventStream, o sale.Order) {
	if s.only != 0 && o.ID != s.only || rank[o.Status] <= s.reported[o.ID] {
		return
	}
	if len(s.reported) >= maxReported {
		clear(s.reported)
	}
	s.reported[o.ID] = rank[o.Status]
	data, err := json.Marshal(orderJSON(sale.Order{ID: o.ID, SaleID: o.SaleID, Status: o.Status}))
	if err != nil { // strings and a time: cannot fail
		return
	}
	e.Event(events.ID(o.ID, o.Status), "order", data)
}
