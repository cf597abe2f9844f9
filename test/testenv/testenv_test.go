package testenv

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestRedisKeepsDataOverRestartIfConfigured(t *testing.T) {
	r := StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	ctx := context.Background()
	c := r.Client()
	if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r.Kill()
	r.Start()
	if got, err := c.Get(ctx, "k").Result(); err != nil || got != "v" {
		t.Fatalf("after a kill: %q, %v", got, err)
	}
}

func TestPostgresSharedAndOwn(t *testing.T) {
	own := StartPostgres(t)
	own.Kill()
	own.Start()
	own.Crash()
	own.Start()
	for _, url := range []string{SharedPostgres(t).URL, SharedPostgres(t).URL, own.URL} {
		conn, err := pgx.Connect(context.Background(), url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(context.Background(), "CREATE TABLE x (id int)"); err != nil {
			t.Fatalf("%s is not empty: %v", url, err)
		}
		conn.Close(context.Background())
	}
}
