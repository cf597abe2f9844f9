package store_test

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

func TestProbeReportsWhetherTheDatabaseResponds(t *testing.T) {
	for _, url := range []string{storetest.Postgres(t), storetest.SQLite(t)} {
		db, err := store.Open(t.Context(), url, store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := store.Probe(t.Context(), url); err != nil {
			t.Errorf("existing database: %v", err)
		}
	}
	for _, url := range []string{"postgres://sluice@127.0.0.1:1/x?sslmode=disable",
		"sqlite:" + filepath.Join(t.TempDir(), "none.db")} {
		if err := store.Probe(t.Context(), url); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("%s: %v", url, err)
		}
	}
	var bad *store.URLError
	if err := store.Probe(t.Context(), "mysql://x"); !errors.As(err, &bad) {
		t.Errorf("unknown engine: %v", err)
	}
}

// A standby responds but cannot write. The same is true of a role with default_transaction_read_only.
func TestReadOnlyDatabaseIsReported(t *testing.T) {
	url := storetest.Postgres(t)
	storetest.Exec(t, url, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on',"+
		" current_database()); END $$")
	if err := store.Probe(t.Context(), url); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("probe: %v, want %v", err, store.ErrReadOnly)
	}
	if err := open(t, url, store.Config{}).Ping(t.Context()); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("ping: %v, want %v", err, store.ErrReadOnly)
	}
}

// A connection pooler accepts connections before it has connected to the database.
func TestProbeReportsAPoolerWithoutADatabase(t *testing.T) {
	pooler := testenv.ServeTCP(t, rejectStatements)
	err := store.Probe(t.Context(), "postgres://sluice@"+pooler+"/sluice?sslmode=disable")
	if !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("%v, want an error that wraps sale.ErrUnavailable", err)
	}
}

// rejectStatements authenticates a client of PostgreSQL, and answers each of its statements with an error.
func rejectStatements(conn net.Conn) {
	server := pgproto3.NewBackend(conn, conn)
	if _, err := server.ReceiveStartupMessage(); err != nil {
		return
	}
	server.Send(&pgproto3.AuthenticationOk{})
	for {
		server.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if server.Flush() != nil {
			return
		}
		message, err := server.Receive()
		if _, query := message.(*pgproto3.Query); err != nil || !query {
			return
		}
		server.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08006", Message: "no server"})
	}
}
