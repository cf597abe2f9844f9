package store_test

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"slices"
	"testing"

	"github.com/pressly/goose/v3"

	"sluice/backend/events/webhook"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// at makes the tables of an older version in an empty database.
func at(t *testing.T, databaseURL string, version int64) {
	t.Helper()
	driver, source, dialect, dir := "pgx", databaseURL, goose.DialectPostgres, "migrations/postgres"
	if u, err := url.Parse(databaseURL); err == nil && u.Scheme == "sqlite" {
		driver, source, dialect, dir = "sqlite", "file:"+u.Path, goose.DialectSQLite3, "migrations/sqlite"
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	provider, err := goose.NewProvider(dialect, db, os.DirFS(dir), goose.WithDisableGlobalRegistry(true))
	if err == nil {
		_, err = provider.UpTo(context.Background(), version)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A database of version 2 with data is upgraded. Old secrets sign until their time, also after the upgrade.
func TestUpgradeKeepsOldSecretsThatSign(t *testing.T) {
	for engine, c := range map[string]struct{ url, future, past string }{
		"sqlite":   {storetest.BareSQLite(t), "4102444800000", "1000"},
		"postgres": {storetest.BarePostgres(t), "'2100-01-01'", "'2001-01-01'"},
	} {
		t.Run(engine, func(t *testing.T) {
			at(t, c.url, 2)
			const insert = "INSERT INTO webhook_endpoints (id, url, title, secret, old_secret, old_until, types, sales, strict," +
				" created_at, created_by) VALUES "
			created := map[string]string{"sqlite": "1000", "postgres": "now()"}[engine]
			for id, old := range map[string]string{
				"signs": "'whsec_old', " + c.future, "ended": "'whsec_old', " + c.past, "never": "NULL, NULL",
			} {
				storetest.Exec(t, c.url, insert+"('"+id+"', 'https://shop.example', '', 'whsec_new', "+old+
					", '', '', 0, "+created+", 'eve')")
			}
			db, err := store.Open(t.Context(), c.url, store.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			endpoints, err := webhook.NewStore(db).Endpoints(t.Context())
			if err != nil || len(endpoints) != 3 {
				t.Fatalf("%d endpoints, %v", len(endpoints), err)
			}
			for _, e := range endpoints {
				var want []string
				if e.ID == "signs" {
					want = []string{"whsec_old"}
				}
				if e.Secret != "whsec_new" || !slices.Equal(e.OldSecrets, want) || e.OldUntil.IsZero() != (want == nil) {
					t.Errorf("%s: %q and %q until %s", e.ID, e.Secret, e.OldSecrets, e.OldUntil)
				}
			}
			made, err := store.New(db).CreateSale(t.Context(), storetest.Sale("s", 1))
			if err != nil || made.Details != (sale.Details{}) {
				t.Errorf("%+v, %v", made, err)
			}
		})
	}
}

// docs/scale.md describes how an admin of a large database creates indexes before the upgrade.
func TestUpgradeSkipsIndexesThatExist(t *testing.T) {
	for version, indexes := range map[int64][]string{
		5:  {"orders_sale ON orders (sale_id, id)", "payments_sale ON payments (sale_id, id)"},
		11: {"webhook_deliveries_waiting ON webhook_deliveries (endpoint_id, number) WHERE state = 1"},
	} {
		databaseURL := storetest.BarePostgres(t)
		at(t, databaseURL, version)
		for _, index := range indexes {
			storetest.Exec(t, databaseURL, "CREATE INDEX CONCURRENTLY "+index)
		}
		db, err := store.Open(t.Context(), databaseURL, store.Config{})
		if err != nil {
			t.Fatalf("from version %d: %v", version, err)
		}
		_ = db.Close()
	}
}
