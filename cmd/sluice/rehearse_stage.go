package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sluice/backend/sale"
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

// removeRehearsal removes a copy.
func (o *adminClient) removeRehearsal(ctx context.Context, id string) (r removedJSON, err error) {
	err = o.do(ctx, post(adminPath("rehearsals", id, "remove"), struct{}{}), &r)
	return r, err
}

func (s *rehearsalStage) Make(
	ctx context.Context, saleID string, stock int64, opens, closes time.Time,
) (rehearsal.Sale, error) {
	var made client.AdminSale
	err := s.o.do(ctx, post(adminPath("rehearsals"), struct {
		Sale   string    `json:"sale"`
		Stock  int64     `json:"stock,omitempty"`
		Opens  time.Time `json:"opens_at"`
		Closes time.Time `json:"closes_at"`
		Beside bool      `json:"beside_real_sales"`
	}{saleID, stock, opens.UTC(), closes.UTC(), s.beside}), &made)
	switch problemStatus(err) {
	case http.StatusNotFound:
		err = errors.New(noSuch("sales", saleID))
	case http.StatusConflict:
		err = fmt.Errorf("%w Rehearse while no real sale is open, or add --beside-real-sales", err)
	}
	if err == nil && (!sale.IsRehearsal(made.ID) || sale.ValidateID(made.ID) != nil) { // it names the files of the report
		err = fmt.Errorf("the server returned %q as the id of the rehearsal", made.ID)
	}
	return rehearsal.Sale{ID: made.ID, Title: made.Title, Stock: made.Stock, PerBuyer: int64(made.PerBuyer)}, err
}

func (s *rehearsalStage) Remove(ctx context.Context, id string) (orders int64, gone bool, err error) {
	r, err := s.o.removeRehearsal(ctx, id)
	switch problemStatus(err) {
	case http.StatusNotFound: // repeated after a lost response
		return 0, true, nil
	case http.StatusConflict:
		return 0, false, nil
	}
	return r.Orders, err == nil, err
}
