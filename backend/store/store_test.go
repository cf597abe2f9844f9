package store_test

import (
	"os"
	"testing"

	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

func TestSQLiteStore(t *testing.T) { storetest.Run(t, storetest.SQLite, storetest.BareSQLite) }

func TestPostgresStore(t *testing.T) { storetest.Run(t, storetest.Postgres, storetest.BarePostgres) }
