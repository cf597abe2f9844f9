package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"sluice/client"
	"sluice/internal/rehearsal"
)

// rehearsalStage creates and removes a rehearsal through the admin API.
type rehearsalStage struct {
	o      *adminClient
	beside bool
}

type removedJSON struct {
	ID     string `json:"id"`
	Orders int64  `json:"orders"`
}

func rehearsalPath(id string) string { return "/admin/v1/rehearsals/" + url.PathEscape(id) }

func (s *rehearsalStage) Make(
	ctx context.Context,
	saleID string,
	stock int64,
	opens, closes time.Time,
) (rehearsal.Sale, error) {
	var made client.AdminSale
	err := s.o.call(ctx, http.MethodPost, "/admin/v1/rehearsals", struct {
		Sale   string    `json:"sale"`
		Stock  int64     `json:"stock,omitempty"`
		Opens  time.Time `json:"opens_at"`
		Closes time.Time `json:"closes_at"`
		Beside bool      `json:"beside_real_sales"`
	}{saleID, stock, opens.UTC(), closes.UTC(), s.beside}, &made)
	var answered *client.Problem
	if errors.As(err, &answered) {
		switch answered.Status {
		case http.StatusNotFound:
			err = fmt.Errorf("there is no sale %s", saleID)
		case http.StatusConflict:
			err = fmt.Errorf("%w Rehearse before it opens or after it is closed, or insist with --beside-real-sales", err)
		}
	}
	return rehearsal.Sale{ID: made.ID, Title: made.Title, Stock: made.Stock, PerBuyer: int64(made.PerBuyer)}, err
}

func (s *rehearsalStage) Remove(ctx context.Context, id string) (orders int64, gone bool, err error) {
	var r removedJSON
	err = s.o.call(ctx, http.MethodPost, rehearsalPath(id)+"/remove", struct{}{}, &r)
	var answered *client.Problem
	switch {
	case err == nil,
		errors.As(err, &answered) && answered.Status == http.StatusNotFound: // a repeated remove after a lost answer
		return r.Orders, true, nil
	case answered != nil && answered.Status == http.StatusConflict:
		return 0, false, nil
	}
	return 0, false, err
}

// rehearsalRecords reads the results of the orders through the admin API.
type rehearsalRecords struct{ o *adminClient }

func (b rehearsalRecords) Audit(ctx context.Context, id string) (client.Audit, error) {
	var a client.Audit
	err := b.o.call(ctx, http.MethodGet, salePath(id)+"/audit", nil, &a)
	return a, err
}

func (b rehearsalRecords) Rows(ctx context.Context, id string, yield func(order, buyer string, cancelled bool)) error {
	return b.pages(ctx, "/admin/v1/orders", id, func(o orderedJSON) { yield(o.ID, o.Buyer, o.Status == "cancelled") })
}

func (b rehearsalRecords) Dead(ctx context.Context, id string, yield func(order string)) error {
	return b.pages(ctx, "/admin/v1/dead", id, func(o orderedJSON) { yield(o.ID) })
}

// orderedJSON is an order in either list.
type orderedJSON struct {
	ID     string `json:"order_id"`
	Buyer  string `json:"buyer"`
	Status string `json:"status"`
}

func (b rehearsalRecords) pages(ctx context.Context, path, id string, each func(orderedJSON)) error {
	query := url.Values{"sale": {id}, "limit": {"1000"}}
	for {
		var page struct {
			Orders []orderedJSON `json:"orders"`
			Dead   []orderedJSON `json:"dead"`
			Next   string        `json:"next"`
		}
		if err := b.o.call(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &page); err != nil {
			return err
		}
		for _, o := range append(page.Orders, page.Dead...) {
			each(o)
		}
		if page.Next == "" {
			return nil
		}
		query.Set("after", page.Next)
	}
}
