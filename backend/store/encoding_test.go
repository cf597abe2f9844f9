package store_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// A database whose encoding is not UTF-8 cannot store every buyer id. An order of such a buyer can have no row, and an
// admin must still be able to drop it.
func TestOrderWithUnsupportedCharactersIsDropped(t *testing.T) {
	u, err := url.Parse(storetest.BarePostgres(t))
	if err != nil {
		t.Fatal(err)
	}
	storetest.Exec(t, u.String(), "CREATE DATABASE "+strings.TrimPrefix(u.Path, "/")+
		"_western ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	u.Path += "_western"
	query := u.Query()
	query.Set("client_encoding", "UTF8") // otherwise the server interprets the bytes as LATIN1
	u.RawQuery = query.Encode()
	db := storetest.Open(t, u.String())
	if _, err := db.CreateSale(t.Context(), storetest.Sale("s", 5)); err != nil {
		t.Fatal(err)
	}
	o := storetest.Order("s", "王")
	if err := db.Write(t.Context(), []sale.Order{o}); !errors.Is(err, store.ErrRejected) {
		t.Fatalf("written: %v", err)
	}
	_, refused := db.CancelDead(t.Context(), store.DeadOrder{Order: o})
	if !errors.Is(refused, store.ErrRejected) {
		t.Fatalf("cancelled: %v", refused)
	}
	ctx := acting(t.Context(), "王", "zurück an 王")
	if err := db.DropDead(ctx, store.DeadOrder{Order: o, Unbacked: true}, refused); err != nil {
		t.Fatal(err)
	}
	last, err := db.LastLog(t.Context(), o.ID.String(), store.DroppedDead)
	if err != nil || last.Actor != `\u738b` || !last.HeldNoUnit() ||
		!strings.Contains(last.Detail, `sale s: zur\u00fcck an \u738b`) {
		t.Errorf("log %+v, %v", last, err)
	}
}
