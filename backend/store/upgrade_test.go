package store_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
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

// A database of version 2 with data is upgraded. Rotated secrets sign until they expire, also after the upgrade.
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
		14: {"admin_log_sale ON admin_log (sale_id, id) WHERE sale_id <> ''"},
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

// Entries of the action log get their sale from their text, and a process of the earlier version can still write some.
func TestUpgradeFillsTheSalesOfTheLog(t *testing.T) {
	for engine, databaseURL := range map[string]string{
		"sqlite": storetest.BareSQLite(t), "postgres": storetest.BarePostgres(t),
	} {
		t.Run(engine, func(t *testing.T) {
			at(t, databaseURL, 12)
			entries := []struct{ action, target, detail, want string }{
				{"sale.pause", "a", "version 2: too fast", "a"},
				{"rehearsal.remove", "rehearsal-a-x", "3 orders", "rehearsal-a-x"},
				{"rehearsal.report", "rehearsal-a-x", "go", "a"},
				{"rehearsal.report", "rehearsal-a-y", "go", ""}, // its report was replaced
				{"payment.settle", "7", "payment 1, reference p: sale c: refunded", "b"},
				{"payment.settle", "8", "payment 2, reference p: sale c: refunded", ""}, // its payment was archived
				{"order.cancel", "7", "sale a.b-c_D", "a.b-c_D"},
				{"order.cancel", "7", "sale a: sale b: resold", "a"},
				{"order.cancel", "7", "it held no unit; sale a", "a"},
				{"order.cancel", "7", "it is a row and stays; it held no unit; sale a: sale b", "a"},
				{"dead.retry", "7", "sale a: timeout", "a"},
				{"dead.drop", "7", "sale a:  (there can be no row: rejected)", "a"},
				{"dead.drop", "raw:1", "sale a: by hand", ""},
				{"order.cancel", "7", "resale a: unknown text", ""},
				{"webhook.add", "ep_1", "sale a: a reason", ""},
			}
			stored := map[string]string{"sqlite": "1000", "postgres": "now()"}[engine]
			storetest.Exec(t, databaseURL, "INSERT INTO rehearsal_reports (id, sale_id, verdict, stored_at, stored_by, report)"+
				" VALUES ('rehearsal-a-x', 'a', 'go', "+stored+", 'eve', '{}')")
			storetest.Exec(t, databaseURL, "INSERT INTO payments (callback_id, digest, order_id, sale_id, event, amount,"+
				" currency, reference, outcome, refund) VALUES ('c', 'd', 7, 'b', 'succeeded', 1, 'EUR', 'p', 'paid_already', 1)")
			insert := func(action, target, detail string) {
				storetest.Exec(t, databaseURL, "INSERT INTO admin_log (actor, action, target, detail) VALUES ('eve', '"+action+
					"', '"+target+"', '"+detail+"')")
			}
			for _, entry := range entries {
				insert(entry.action, entry.target, entry.detail)
			}
			db := storetest.Open(t, databaseURL)
			insert("dead.retry", "9", "sale a: of an old process")
			log, err := db.Log(t.Context(), store.LogQuery{})
			if err != nil || len(log) != len(entries)+1 || log[0].Target != "9" || log[0].SaleID != "" {
				t.Fatalf("%+v, %v", log, err)
			}
			slices.Reverse(log)
			for i, entry := range entries {
				if log[i].SaleID != entry.want {
					t.Errorf("%s %q: sale %q, want %q", entry.action, entry.detail, log[i].SaleID, entry.want)
				}
			}
		})
	}
}

// A long transaction that reads the action log, such as pg_dump, or that writes it, does not make an upgrade block the
// writers of the log.
func TestUpgradeDoesNotWaitForTransactionsOfTheLog(t *testing.T) {
	for _, c := range []struct {
		version int64
		lock    string
	}{{12, "ACCESS SHARE"}, {14, "ROW EXCLUSIVE"}} {
		databaseURL := storetest.BarePostgres(t)
		at(t, databaseURL, c.version)
		old := storetest.Connect(t, databaseURL)
		if _, err := old.Exec(t.Context(), "BEGIN; LOCK TABLE admin_log IN "+c.lock+" MODE"); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Open(t.Context(), databaseURL, store.Config{}); !errors.Is(err, sale.ErrUnavailable) ||
			!strings.Contains(err.Error(), "lock timeout") {
			t.Errorf("from version %d, while another transaction has the lock %s: %v", c.version, c.lock, err)
		}
		if _, err := old.Exec(t.Context(), "COMMIT"); err != nil {
			t.Fatal(err)
		}
		storetest.Open(t, databaseURL)
	}
}

// An index of a large table takes longer than any statement of a running process may take.
func TestMigrationsHaveNoTimeout(t *testing.T) {
	databaseURL := storetest.BarePostgres(t)
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Exec(t, databaseURL, `
		CREATE FUNCTION reject_timeout() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
			IF current_setting('statement_timeout') <> '0' THEN
				RAISE 'a migration has the timeout %', current_setting('statement_timeout');
			END IF;
		END $$;
		CREATE EVENT TRIGGER reject_timeout ON ddl_command_start EXECUTE FUNCTION reject_timeout();
		ALTER DATABASE `+strings.TrimPrefix(u.Path, "/")+` SET statement_timeout = '1h'`)
	db, err := store.Open(t.Context(), databaseURL, store.Config{Timeout: storetest.Timeout})
	if err != nil {
		t.Fatal(err)
	}
	_ = db.Close()
}

// A process that is stopped during a migration must not leave a statement, with its locks, running in the server.
func TestStopDuringAMigrationEndsItsStatement(t *testing.T) {
	databaseURL := storetest.Postgres(t)
	old, observer := storetest.Connect(t, databaseURL), storetest.Connect(t, databaseURL)
	if _, err := old.Exec(t.Context(), "BEGIN; LOCK TABLE goose_db_version"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	opened := make(chan error, 1)
	go func() {
		_, err := store.Open(ctx, databaseURL, store.Config{Timeout: storetest.Timeout})
		opened <- err
	}()
	storetest.AwaitLocks(t, databaseURL, 1)
	stop()
	if err := <-opened; err == nil {
		t.Error("Open succeeded after the stop")
	}
	if n := storetest.Waiting(t, observer); n != 0 {
		t.Errorf("%d statements wait for a lock after the stop", n)
	}
}
