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

// A database of another encoding rejects or changes characters of names, reasons and references.
func TestDatabaseOfAnotherEncodingIsRejected(t *testing.T) {
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		u, err := url.Parse(storetest.BarePostgres(t))
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(u.Path, "/") + "_" + strings.ToLower(encoding)
		storetest.Exec(t, u.String(), "CREATE DATABASE "+name+" ENCODING '"+encoding+"' LOCALE 'C' TEMPLATE template0")
		u.Path = "/" + name
		_, err = store.Open(t.Context(), u.String(), store.Config{})
		want := "its encoding is " + encoding + " and must be UTF8: create a database with ENCODING 'UTF8'"
		if bad, ok := errors.AsType[*store.URLError](err); !ok || errors.Is(err, sale.ErrUnavailable) ||
			!strings.Contains(bad.Error(), want) {
			t.Errorf("%v, want a URLError: %s", err, want)
		}
		var tables int
		err = storetest.Connect(t, u.String()).QueryRow(t.Context(),
			"SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&tables)
		if err != nil || tables != 0 {
			t.Errorf("%d tables were created, %v", tables, err)
		}
	}
}

// A server, a database or a role can have a default encoding of its clients.
func TestTextIsSentAsUTF8(t *testing.T) {
	u, err := url.Parse(storetest.BarePostgres(t))
	if err != nil {
		t.Fatal(err)
	}
	storetest.Exec(t, u.String(), "ALTER DATABASE "+strings.TrimPrefix(u.Path, "/")+" SET client_encoding = 'LATIN1'")
	shoe := storetest.Sale("s", 1)
	shoe.Title = "鞋"
	if _, err := storetest.Open(t, u.String()).CreateSale(t.Context(), shoe); err != nil {
		t.Fatal(err)
	}
	var characters int
	err = storetest.Connect(t, u.String()).QueryRow(t.Context(), "SELECT length(title) FROM sales").Scan(&characters)
	if err != nil || characters != 1 {
		t.Errorf("the title has %d characters, %v; want 1", characters, err)
	}
}
