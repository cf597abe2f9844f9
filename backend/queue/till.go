package queue

import (
	"sync"

	"sluice/backend/sale"
)

// Till decides purchases in this process and queues the orders in a Memory: never more than the stock, never more for one buyer than allowed, the same request the same
// order, and a unit back when a dead order is cancelled. It stands for admission where a Memory stands for the queue, and keeps every promise of
// admission but one: an accepted order is lost when the process ends before it is a row. Tell nobody "accepted" who would mind.
//
// It is safe for concurrent use.
type Till struct {
	queue *Memory

	mu    sync.Mutex
	sales map[string]*counter
}

type counter struct {
	left     int64
	perBuyer int
	serial   int64
	places   map[string][]sale.OrderID // by buyer; a place given back is 0
	requests map[[2]string]sale.OrderID
}

// NewTill makes a Till without sales. It takes the units back of what is cancelled in the queue, and one queue has one Till.
func NewTill(q *Memory) *Till {
	t := &Till{queue: q, sales: map[string]*counter{}}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.giveBack = t.giveBack
	return t
}

// Open puts a sale on the market, or anew with another stock.
func (t *Till) Open(saleID string, stock int64, perBuyer int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sales[saleID] = &counter{left: stock, perBuyer: perBuyer, places: map[string][]sale.OrderID{}, requests: map[[2]string]sale.OrderID{}}
}

// Left is the number of units left of a sale; 0 where there is none.
func (t *Till) Left(saleID string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.sales[saleID]; c != nil {
		return c.left
	}
	return 0
}

// Buy decides one purchase of a valid buyer. id is new; request names this purchase among those of the buyer. got is the order of Accepted, Replayed and
// AlreadyBought. A queue that is full is QueueFull, and nothing is taken.
func (t *Till) Buy(saleID, buyer, request string, id sale.OrderID) (outcome sale.Outcome, got sale.OrderID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.sales[saleID]
	if c == nil {
		return sale.UnknownSale, 0
	}
	key := [2]string{buyer, request}
	if before, again := c.requests[key]; again {
		return sale.Replayed, before
	}
	nth, last := c.place(buyer)
	switch {
	case nth == 0:
		return sale.AlreadyBought, last
	case c.left < 1:
		return sale.SoldOut, 0
	}
	m := Message{ID: id, SaleID: saleID, Buyer: buyer, Nth: nth, Serial: c.serial + 1, Status: sale.StatusQueued}
	if !t.queue.Offer(m) {
		return sale.QueueFull, 0
	}
	c.left--
	c.serial++
	c.requests[key] = id
	if places := c.places[buyer]; nth <= len(places) {
		places[nth-1] = id
	} else {
		c.places[buyer] = append(places, id)
	}
	return sale.Accepted, id
}

// place is the first free one of a buyer, from 1, or 0 and the latest order.
func (c *counter) place(buyer string) (nth int, last sale.OrderID) {
	places := c.places[buyer]
	for i, id := range places {
		if id == 0 {
			return i + 1, 0
		}
		last = id
	}
	if len(places) < c.perBuyer {
		return len(places) + 1, 0
	}
	return 0, last
}

func (t *Till) giveBack(m Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.sales[m.SaleID]
	if c == nil {
		return
	}
	for i, id := range c.places[m.Buyer] {
		if id == m.ID { // else the sale was opened anew since
			c.places[m.Buyer][i] = 0
			c.left++
		}
	}
}
