package order_test

import (
	"os"
	"testing"

	"sluice/backend/order/ordertest"
	"sluice/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

func TestSQLiteStore(t *testing.T) { ordertest.Run(t, ordertest.SQLite, ordertest.BareSQLite) }

func TestPostgresStore(t *testing.T) { ordertest.Run(t, ordertest.Postgres, ordertest.BarePostgres) }
