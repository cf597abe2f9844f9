package api

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/sale"
	"sluice/internal/problem"
)

const (
	// presentOrders is how many of a buyer's orders a page is told of when it is opened.
	presentOrders = 50
	// maxLastEventID is how long a Last-Event-ID may be; a longer one is none of ours.
	maxLastEventID = 64
	// pollInstead is when a page that was refused may try again; until then it asks for its order itself.
	pollInstead = 30 * time.Second
)

var (
	errPagesFull = refusalOf(problem.Unavailable, "Too many pages are open here. Please ask for the order every few seconds instead: GET /v1/orders/{order}.")
	errManyPages = refusalWith(func() problem.Details {
		d := problem.New(problem.RateLimited, "You have too many pages open. Please close some, or ask for the order every few seconds instead: GET /v1/orders/{order}.")
		d.ViolatedPolicies = []string{"pages"}
		return d
	}())
)

// myEvents is GET /v1/me/events.
func (p *public) myEvents(c *fiber.Ctx) error { return p.openPage(c, 0) }

// orderEvents is GET /v1/orders/{order}/events.
func (p *public) orderEvents(c *fiber.Ctx) error {
	id, err := orderParam(c)
	if err != nil {
		return err
	}
	return p.openPage(c, id)
}

// openPage answers with what becomes of one order of the buyer, or of all (0).
func (p *public) openPage(c *fiber.Ctx, only sale.OrderID) error {
	buyer, expires, err := p.buyerUntil(c)
	if err != nil {
		return err
	}
	if p.cfg.Live == nil || p.draining() {
		return errUnavailable
	}
	ctx := c.Context()
	s := &orderStream{
		conn: ctx.Conn(), only: only, roll: &p.roll, stopping: p.stopping, retry: reconnect + time.Duration(p.jitter()*float64(reconnect)),
		told: map[sale.OrderID]int{}, find: func() (sale.Order, error) { return p.findOrder(buyer, only) },
	}
	if ctx.IsHead() {
		if only != 0 {
			if _, err := s.find(); err != nil {
				return err
			}
		}
		pageHeaders(c)
		return nil
	}
	after := string(ctx.Request.Header.Peek("Last-Event-ID"))
	if len(after) > maxLastEventID {
		after = ""
	}
	// The page hears from now on, and only then asks how things are: nothing lies between.
	page, missed, known, err := p.cfg.Live.Open(p.look.next(), buyer, after)
	switch {
	case errors.Is(err, notify.ErrFull):
		p.roll.call(p.now())
		return errPagesFull.with(header{fiber.HeaderRetryAfter, p.retryAfter(pollInstead)})
	case errors.Is(err, notify.ErrTooMany):
		p.roll.call(p.now())
		return errManyPages.with(header{fiber.HeaderRetryAfter, p.retryAfter(pollInstead)})
	case err != nil:
		return err
	}
	s.page = page
	if err := s.begin(p, buyer, missed, known); err != nil {
		page.Close()
		return err
	}
	pageHeaders(c)
	lifetime := expires.Sub(p.now())
	p.writeEvents(ctx, func(w *bufio.Writer) {
		defer page.Close()
		s.run(w, p.room, lifetime)
	})
	return nil
}

// orderStream writes one page's events. It ends when the client is gone, was too slow, or has no valid token any more, and when the application drains.
type orderStream struct {
	conn     net.Conn
	page     *notify.Page
	only     sale.OrderID // this order; 0: all of the buyer
	find     func() (sale.Order, error)
	roll     *rollCall
	stopping <-chan struct{}
	retry    time.Duration

	first  []update
	queued bool // the order was still in the queue
	told   map[sale.OrderID]int
}

// update is what is said of one order.
type update struct {
	OrderID   string      `json:"order_id"`
	SaleID    string      `json:"sale_id"`
	Status    sale.Status `json:"status"`
	CreatedAt time.Time   `json:"created_at"`

	id sale.OrderID
}

func updateOf(id sale.OrderID, saleID string, status sale.Status) update {
	return update{id.String(), saleID, status, id.Time(), id}
}

func updateOfEvent(e events.Event) update {
	return updateOf(e.OrderID, e.SaleID, sale.Status(strings.TrimPrefix(string(e.Type), "order.")))
}

// begin finds out what the page is told first: what it has missed or, where that is not known, how its orders are.
func (s *orderStream) begin(p *public, buyer string, missed []events.Event, known bool) error {
	if s.only != 0 {
		o, err := s.find() // also to see whose it is
		if err != nil {
			return err
		}
		s.queued = o.Status == sale.StatusQueued
		if !known {
			s.first = []update{updateOf(o.ID, o.SaleID, o.Status)}
		}
	} else if !known {
		orders, err := p.cfg.BuyerOrders.OrdersOfBuyer(p.look.next(), buyer, presentOrders)
		if err != nil {
			return err
		}
		for _, o := range orders {
			s.first = append(s.first, updateOf(o.ID, o.SaleID, o.Status))
		}
	}
	for _, e := range missed {
		s.first = append(s.first, updateOfEvent(e))
	}
	return nil
}

func (s *orderStream) run(w *bufio.Writer, room *waitingRoom, lifetime time.Duration) {
	final, leave := s.await(room)
	defer func() { leave() }()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	expired := time.NewTimer(max(lifetime, 0))
	defer expired.Stop()
	_, _ = w.WriteString("retry: " + strconv.FormatInt(s.retry.Milliseconds(), 10) + "\n\n")
	for _, u := range s.first {
		s.write(w, u)
	}
	s.first = nil
	called := s.roll.next()
	for {
		if s.flush(w) != nil {
			return
		}
		select {
		case e := <-s.page.Events():
			s.write(w, updateOfEvent(e))
			for more := true; more; {
				select {
				case e := <-s.page.Events():
					s.write(w, updateOfEvent(e))
				default:
					more = false
				}
			}
		case <-final:
			leave()
			final, leave = nil, func() {}
			if o, err := s.find(); err == nil {
				s.write(w, updateOf(o.ID, o.SaleID, o.Status))
			}
		case <-beat.C:
			_, _ = w.WriteString(":\n\n")
		case <-called:
			if hungUp(s.conn) {
				return
			}
			called = s.roll.next()
		case <-s.page.Cut():
			return
		case <-expired.C:
			return
		case <-s.stopping:
			return
		}
	}
}

// await waits for an order that is still in the queue: one that dies there makes no event. Call leave once.
func (s *orderStream) await(room *waitingRoom) (final <-chan struct{}, leave func()) {
	if s.queued {
		if ch, ok := room.enter(s.only); ok {
			return ch, func() { room.leave(s.only) }
		}
	}
	return nil, func() {}
}

// steps is how far a status is on an order's way, from 1. An order never goes back, so what says so is old.
var steps = map[sale.Status]int{sale.StatusQueued: 1, sale.StatusDead: 2, sale.StatusCreated: 3, sale.StatusPaid: 4, sale.StatusCancelled: 5}

// maxTold bounds what a stream remembers of what it has told.
const maxTold = 1000

// write tells of an order unless the page knows already.
func (s *orderStream) write(w *bufio.Writer, u update) {
	if s.only != 0 && u.id != s.only || steps[u.Status] <= s.told[u.id] {
		return
	}
	if len(s.told) >= maxTold {
		clear(s.told)
	}
	s.told[u.id] = steps[u.Status]
	data, err := json.Marshal(u)
	if err != nil { // strings and a time: cannot fail
		return
	}
	_, _ = w.WriteString("id: " + events.ID(u.id, u.Status) + "\nevent: order\ndata: ")
	_, _ = w.Write(data)
	_, _ = w.WriteString("\n\n")
}

// flush gives the client writeTimeout for what was written since the last flush. Write errors stick to w and come out here.
func (s *orderStream) flush(w *bufio.Writer) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return w.Flush()
}
