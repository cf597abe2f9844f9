package order_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"sluice/backend/order"
	"sluice/backend/order/ordertest"
	"sluice/backend/sale"
)

// A database that is not UTF-8, asked in UTF-8, has no room for every buyer's name: such an order can be no row, and a person must get rid of it all the same.
func TestOrderThatPostgresCannotSpellIsDropped(t *testing.T) {
	u, err := url.Parse(ordertest.BarePostgres(t))
	if err != nil {
		t.Fatal(err)
	}
	ordertest.Exec(t, u.String(), "CREATE DATABASE western ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	u.Path = "/western"
	query := u.Query()
	query.Set("client_encoding", "UTF8") // else the server takes the bytes for Western letters
	u.RawQuery = query.Encode()
	store := ordertest.Open(t, u.String())
	if _, err := store.CreateSale(t.Context(), ordertest.Sale("s", 5)); err != nil {
		t.Fatal(err)
	}
	o := ordertest.Order("s", "王")
	if err := store.Write(t.Context(), []sale.Order{o}); !errors.Is(err, order.ErrRejected) {
		t.Fatalf("written: %v", err)
	}
	_, refused := store.CancelDead(t.Context(), order.Dead{Order: o}, "ann", "no use")
	if !errors.Is(refused, order.ErrRejected) {
		t.Fatalf("cancelled: %v", refused)
	}
	if err := store.DropDead(t.Context(), order.Dead{Order: o, Unbacked: true}, "王", "zurück an 王", refused); err != nil {
		t.Fatal(err)
	}
	last, err := store.LastLog(t.Context(), o.ID.String(), order.DroppedDead, "")
	if err != nil || last.Actor != `\u738b` || !last.HeldNoUnit() || !strings.Contains(last.Detail, `sale s: zur\u00fcck an \u738b`) {
		t.Errorf("log %+v, %v", last, err)
	}
}
