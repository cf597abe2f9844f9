package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/test/testenv"
)

func TestPostgresErrorsAreClassified(t *testing.T) {
	for code, rejects := range map[string]bool{
		"23505": true, // unique_violation
		"23514": true, // check_violation
		"23000": true, // sluice_reject
		"22021": true, // character_not_in_repertoire
		"22003": true, // numeric_value_out_of_range
		"P0001": true, // raise_exception, of a trigger

		"40001": false, // serialization_failure
		"40P01": false, // deadlock_detected
		"53100": false, // disk_full
		"53200": false, // out_of_memory
		"53300": false, // too_many_connections
		"55P03": false, // lock_not_available
		"57014": false, // query_canceled
		"57P01": false, // admin_shutdown
		"57P03": false, // cannot_connect_now
		"25006": false, // read_only_sql_transaction
		"08006": false, // connection_failure
		"58030": false, // io_error
		"28P01": false, // invalid_password
		"42P01": false, // undefined_table
		"42501": false, // insufficient_privilege
		"XX001": false, // data_corrupted
		"P0004": false, // assert_failure
		"":      false,
	} {
		err := classifyPostgres(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code, Message: "m"}))
		if errors.Is(err, ErrRejected) != rejects || errors.Is(err, sale.ErrUnavailable) == rejects {
			t.Errorf("SQLSTATE %s should reject: %v; got %v", code, rejects, err)
		}
	}
	for _, cause := range []error{io.ErrUnexpectedEOF, context.DeadlineExceeded, context.Canceled} {
		if err := classifyPostgres(cause); !errors.Is(err, sale.ErrUnavailable) || !errors.Is(err, cause) {
			t.Errorf("%v became %v", cause, err)
		}
	}
}

func openFaulty(t *testing.T, timeout time.Duration) (*Store, *engine) {
	t.Helper()
	ctx, url := context.Background(), "sqlite://"+filepath.Join(t.TempDir(), "orders.db")
	made, err := Open(ctx, url, Config{}) // migrations can take longer than timeout
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	var s *DB
	testenv.Eventually(t, time.Minute, "it opens within the timeout", func() bool {
		s, err = Open(ctx, url, Config{Timeout: timeout})
		return err == nil
	})
	t.Cleanup(func() { s.Close() })
	if _, err := New(made).CreateSale(ctx, sale.Sale{
		ID: "s", Title: "t", Price: sale.Price{Currency: "EUR"}, Stock: 1_000_000, PerBuyer: 1, OpensAt: time.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	return New(s), s.engine
}

func batchOf(from, n int) []sale.Order {
	orders := make([]sale.Order, n)
	for i := range orders {
		orders[i] = sale.Order{
			ID:     sale.OrderID(from + i),
			SaleID: "s",
			Buyer:  fmt.Sprintf("buyer %d", from+i),
			Slot:   1,
			Serial: int64(from + i),
		}
	}
	return orders
}

func wantSold(t *testing.T, s *Store, n int64) {
	t.Helper()
	c, err := s.Count(context.Background(), spread.Part{SaleID: "s"}, Always, nil)
	if err != nil || c.Rows != n || c.Sold != n {
		t.Fatalf("%+v, %v; want %d rows", c, err, n)
	}
}

func TestSQLiteFullDiskIsUnavailableAndRollsBack(t *testing.T) {
	s, e := openFaulty(t, time.Minute)
	ctx := context.Background()
	if err := s.Write(ctx, batchOf(1, 100)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.writer.Exec("PRAGMA max_page_count = 1"); err != nil { // no page can be added
		t.Fatal(err)
	}
	if err := s.Write(ctx, batchOf(1000, 1000)); !errors.Is(err, sale.ErrUnavailable) || errors.Is(err, ErrRejected) {
		t.Fatalf("on a full disk: %v", err)
	}
	wantSold(t, s, 100)
	if _, err := e.writer.Exec("PRAGMA max_page_count = 1000000"); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(ctx, batchOf(1000, 1000)); err != nil {
		t.Fatal(err)
	}
	wantSold(t, s, 1100)
}

func TestSQLiteBusyIsUnavailable(t *testing.T) {
	s, e := openFaulty(t, 300*time.Millisecond)
	ctx := context.Background()
	var path string
	if err := e.readers.QueryRow("SELECT file FROM pragma_database_list").Scan(&path); err != nil {
		t.Fatal(err)
	}
	other, err := Open(ctx, "sqlite://"+path, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tx, err := other.engine.writer.Begin() // BEGIN IMMEDIATE: holds the write lock like another process
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := s.Write(ctx, batchOf(1, 10)); !errors.Is(err, sale.ErrUnavailable) {
		t.Fatalf("while another process writes: %v", err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("it took %s, the timeout is 300ms", took)
	}
	wantSold(t, New(other), 0) // readers are not blocked
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "it writes again", func() bool { return s.Write(ctx, batchOf(1, 10)) == nil })
	wantSold(t, New(other), 10)
}

func TestSQLiteCommitsReachTheDisk(t *testing.T) {
	_, e := openFaulty(t, 300*time.Millisecond)
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1",
		"busy_timeout": "300"} {
		var got string
		if err := e.writer.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("PRAGMA %s is %s (%v), want %s", pragma, got, err, want)
		}
	}
	if _, err := e.readers.Exec("DELETE FROM sales"); err == nil {
		t.Error("a reader connection can write")
	}
}

// If the context ends while a row is read, the driver closes the row and Scan returns the context's error.
func TestSQLiteContextEndsDuringScanIsUnavailable(t *testing.T) {
	_, e := openFaulty(t, 5*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	err := e.conn().Query(ctx, func(r Scanner) error {
		cancel()
		for {
			if err := r.Scan(new(int64)); err != nil {
				return err
			}
		}
	}, "SELECT 1 UNION SELECT 2")
	if !errors.Is(err, sale.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
