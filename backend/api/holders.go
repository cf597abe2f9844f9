package api

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/sync/singleflight"

	"sluice/backend/admission"
	"sluice/internal/problem"
)

const (
	// maxHolders is how many holders a list may have. Edges do not repeat refusals of a sale with more.
	maxHolders = 2_000_000
	// maxListBytes and maxLists bound the lists that are kept, at 4 bytes a holder.
	maxListBytes = 32 << 20
	maxLists     = 64
	// maxListAge is how long a list is kept although nothing was bought since: should Redis ever come back older than it was, its count may
	// come to the same number again with other buyers.
	maxListAge = time.Minute
	// listTimeout bounds one answer: a million holders take about two seconds.
	listTimeout = 20 * time.Second
)

var errManyHolders = refusalOf(problem.Unavailable, "This sale has more holders than are listed.")

// holders is GET /.sluice/sales/{sale}/holders, which edges ask: the checksums of all who may hold an order of the sale.
func (p *public) holders(c *fiber.Ctx) error {
	saleID, err := saleParam(c)
	if err != nil {
		return err
	}
	list, err := p.lists.of(saleID)
	if errors.Is(err, admission.ErrBypassListTooLong) {
		return errManyHolders
	}
	if err != nil {
		if r, _ := refusalFor(err); r == errNotFound {
			return p.unknownSale(saleID)
		}
		return err
	}
	resp := &c.Context().Response
	resp.Header.SetContentType(fiber.MIMEOctetStream)
	resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	resp.Header.Set("Sluice-Holders", list.head)
	resp.SetBodyRaw(list.body)
	return nil
}

// holderList is an answer, ready for the wire. It never changes.
type holderList struct {
	head     string
	body     []byte
	accepted int64
	made     time.Time
}

func newHolderList(saleID string, h admission.BypassList, now time.Time) *holderList {
	body := make([]byte, 0, 4*len(h.Sums))
	for _, sum := range h.Sums {
		body = binary.BigEndian.AppendUint32(body, sum)
	}
	head := make([]byte, 0, 128)
	head = strconv.AppendInt(append(append(head, saleID...), ";accepted="...), h.Accepted, 10)
	head = strconv.AppendInt(append(head, ";count="...), int64(len(h.Sums)), 10)
	return &holderList{head: string(head), body: body, accepted: h.Accepted, made: now}
}

// holderLists keeps the lists of a few sales for as long as nobody buys, and makes one at a time: a flood of edges, or of strangers, costs Redis one
// short look each.
type holderLists struct {
	stock Stock
	now   func() time.Time

	flights  singleflight.Group
	building chan struct{} // holds one token while a list is made

	mu    sync.Mutex
	kept  map[string]*holderList
	order []string // of kept, the longest unused first
	bytes int
}

func newHolderLists(stock Stock, now func() time.Time) *holderLists {
	return &holderLists{stock: stock, now: now, building: make(chan struct{}, 1), kept: map[string]*holderList{}}
}

// of is the list of a sale. Whoever asks while another's question is under way shares its answer.
func (l *holderLists) of(saleID string) (*holderList, error) {
	v, err, _ := l.flights.Do(saleID, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
		defer cancel()
		accepted, err := l.stock.Accepted(ctx, saleID)
		if err != nil {
			return nil, err
		}
		if list := l.find(saleID, accepted); list != nil {
			return list, nil
		}
		return l.build(ctx, saleID)
	})
	if err != nil {
		return nil, err
	}
	return v.(*holderList), nil
}

func (l *holderLists) build(ctx context.Context, saleID string) (*holderList, error) {
	select {
	case l.building <- struct{}{}:
		defer func() { <-l.building }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	h, err := l.stock.BypassList(ctx, saleID, maxHolders)
	if err != nil {
		return nil, err
	}
	list := newHolderList(saleID, h, l.now())
	l.keep(saleID, list)
	return list, nil
}

// find returns the kept list if it is still good after so many acceptances.
func (l *holderLists) find(saleID string, accepted int64) *holderList {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.kept[saleID]
	if list == nil {
		return nil
	}
	l.drop(saleID)
	if list.accepted != accepted || l.now().Sub(list.made) >= maxListAge {
		return nil
	}
	l.add(saleID, list)
	return list
}

func (l *holderLists) keep(saleID string, list *holderList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(saleID)
	for len(l.order) > 0 && (len(l.order) >= maxLists || l.bytes+len(list.body) > maxListBytes) {
		l.drop(l.order[0])
	}
	l.add(saleID, list)
}

func (l *holderLists) add(saleID string, list *holderList) {
	l.kept[saleID] = list
	l.order = append(l.order, saleID)
	l.bytes += len(list.body)
}

func (l *holderLists) drop(saleID string) {
	list := l.kept[saleID]
	if list == nil {
		return
	}
	delete(l.kept, saleID)
	l.bytes -= len(list.body)
	for i, id := range l.order {
		if id == saleID {
			l.order = append(l.order[:i], l.order[i+1:]...)
			return
		}
	}
}
