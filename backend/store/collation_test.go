package store_test

import (
	"net/url"
	"strings"
	"testing"

	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// By default, Debian creates databases that order text by a language and compare punctuation last. The database of this
// test does the same.
func TestLogIsFilteredInADatabaseOfAnyCollation(t *testing.T) {
	u, err := url.Parse(storetest.BarePostgres(t))
	if err != nil {
		t.Fatal(err)
	}
	storetest.Exec(t, u.String(), "CREATE DATABASE "+strings.TrimPrefix(u.Path, "/")+
		"_english TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-u-ka-shifted'")
	u.Path += "_english"
	db := storetest.Open(t, u.String())
	if _, err := db.CreateSale(t.Context(), storetest.Sale("s", 5)); err != nil {
		t.Fatal(err)
	}
	if err := db.Record(t.Context(), "sales.export", "s", ""); err != nil {
		t.Fatal(err)
	}
	log, err := db.Log(t.Context(), store.LogQuery{Action: "sale"})
	if err != nil || len(log) != 1 || log[0].Action != "sale.create" {
		t.Errorf("entries of the first part sale: %+v, %v", log, err)
	}
}
