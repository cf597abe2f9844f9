package browser

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

var (
	scaleSales = flag.Int("scale-sales", 0, "sales of TestAdminConsoleAtScale")
	scaleDead  = flag.Int("scale-dead", 0, "dead letters of TestAdminConsoleAtScale")
)

// slowest bounds the time to the first row.
const slowest = 3 * time.Second

// The console with many sales and dead letters: the time to the first row, and the backend's memory.
func TestAdminConsoleAtScale(t *testing.T) {
	if *scaleSales == 0 || *scaleDead == 0 {
		t.Skip("-scale-sales and -scale-dead are not given: see `make admin-scale`")
	}
	s, env := newShop(t)
	pg, store := testenv.SharedPostgres(t), testenv.StartRedis(t)
	s.database = pg.URL
	backend := testenv.Launch(t, binary,
		append(env, "SLUICE_REDIS_URL=redis://"+store.Addr+"/0", "SLUICE_DATABASE_URL="+pg.URL), "backend")
	testenv.AwaitOK(s.t, s.base+"/readyz")
	empty, began := memory(t, backend.Pid()), time.Now()
	step := func(what string) {
		t.Logf("%-34s %8s", what, time.Since(began).Round(time.Millisecond))
		began = time.Now()
	}
	s.sql(
		fmt.Sprintf(
			`INSERT INTO sales (id, title, price_amount, currency, stock, per_buyer, opens_at, switch, version, created_at)
		SELECT 's-' || n, 'Sale number ' || n || ', of the autumn collection', 9990, 'EUR', 1000, 1, now() - interval '1 day', CASE WHEN n %% 10 = 0 THEN 'paused' ELSE 'on' END, 1, now() - n * interval '1 second'
		FROM generate_series(1, %d) n`,
			*scaleSales,
		),
	)
	client := store.Client()
	fillDead(t, client, *scaleDead)
	step("set-up: rows and dead letters")
	testenv.Eventually(t, 5*time.Minute, "all sales in Redis", func() bool {
		n, err := client.SCard(t.Context(), keyspace.Shard(0).Sales()).Result()
		return err == nil && n == int64(*scaleSales)
	})
	step("set-up: all sales in Redis")
	full := memory(t, backend.Pid())
	// The dead letters are those of an older version, which kept no list of them by sale: the first count creates it.
	if body := s.read("/sales/s-1/audit"); !strings.Contains(body, `"balanced":true`) {
		t.Errorf("the first audit: %.300s", body)
	}
	step("the first count of any sale")

	if err := client.Do(t.Context(), "CONFIG", "SET", "slowlog-log-slower-than", "5000").Err(); err != nil {
		t.Fatal(err)
	}
	client.Do(t.Context(), "SLOWLOG", "RESET")
	middle := fmt.Sprintf("s-%d", *scaleSales/2)
	for _, c := range []struct{ what, path, has string }{
		{"sales, first page", "/sales?limit=50", `"s-1"`},
		{"sales, a page in the middle", "/sales?limit=50&after=" + middle, `"next"`},
		{"sales, search that finds one", "/sales?limit=50&q=number+" + middle[2:] + ",", `"` + middle + `"`},
		{"sales, search that finds none", "/sales?limit=50&q=nothing+like+it", `"sales":[]`},
		{"sales, paused ones", "/sales?limit=50&state=paused", `"s-10"`},
		{"one sale", "/sales/" + middle, middle},
		{"dead letters, first page", "/dead?limit=50", `"next"`},
		{
			"dead letters, in the middle", "/dead?limit=50&died_after=" + deadAt(*scaleDead/2).UTC().Format(time.RFC3339Nano),
			`"next"`,
		},
		{"dead letters, by order id", "/dead/" + deadOrder(*scaleDead/2).String(), `"history"`},
		{"dead letters, a frequent reason", "/dead?limit=50&error_contains=deadlock", `"deadlock`},
		{"action log", "/log?limit=50", `"log"`},
	} {
		var best time.Duration
		for i := range 5 {
			began := time.Now()
			body := s.read(c.path)
			if took := time.Since(began); i == 0 || took < best {
				best = took
			}
			if !strings.Contains(body, c.has) {
				t.Fatalf("%s: %.300s", c.what, body)
			}
		}
		t.Logf("%-34s %8s", c.what, best.Round(100*time.Microsecond))
		if best > slowest {
			t.Errorf("%s takes %s", c.what, best)
		}
	}
	after, calls := "", 0
	began = time.Now()
	for found := false; !found; calls++ { // the last of all dead letters
		var page struct {
			Dead []any
			Next string
		}
		if err := json.Unmarshal([]byte(s.read("/dead?limit=50&error_contains=only+one&after="+after)), &page); err != nil {
			t.Fatal(err)
		}
		if found, after = len(page.Dead) > 0, page.Next; !found && after == "" {
			t.Fatal("the dead letter is not found")
		}
	}
	t.Logf("%-34s %8s in %d calls", "dead letters, one in all of them", time.Since(began).Round(time.Millisecond), calls)

	for _, c := range []struct{ what, path, row string }{
		{"sales in the browser", "sales", `document.querySelector("tbody tr")`},
		{"dead letters in the browser", "dead", `document.querySelector("tbody tr[data-key]")`},
	} {
		who := newPerson(t)
		s.atConsole(t, who, "ann", "log")
		began := time.Now()
		b := open(t, who, s.admin+"/admin/"+c.path)
		b.await("the first row", c.row)
		took := b.eval(`Math.round(performance.now()) + " ms after the request of the page"`)
		t.Logf("%-34s %8s (%s)", c.what+", first row", time.Since(began).Round(time.Millisecond), took)
	}
	slow := client.SlowLogGet(t.Context(), 1000).Val()
	longest := slices.MaxFunc(append(slow, redis.SlowLog{}),
		func(a, b redis.SlowLog) int { return cmp.Compare(a.Duration, b.Duration) })
	t.Logf("commands that blocked Redis for more than 5 ms: %d, the longest for %s: %.60s", len(slow),
		longest.Duration.Round(time.Millisecond), strings.Join(longest.Args, " "))
	for _, id := range []string{middle, "s-1"} { // without dead letters, and with all of them
		began = time.Now()
		if body := s.read("/sales/" + id + "/audit"); !strings.Contains(body, `"balanced":true`) {
			t.Errorf("the audit: %.300s", body)
		}
		step("the count of sale " + id)
	}
	t.Logf("memory of the backend: %d MB at its start, %d MB with all in the stores, %d MB after this, %d MB at most",
		empty.now, full.now, memory(t, backend.Pid()).now, memory(t, backend.Pid()).most)
}

// fillDead writes dead letters that hold no unit, one a millisecond.
func fillDead(t *testing.T, c redisconn.Client, n int) {
	t.Helper()
	ctx, shard := context.Background(), keyspace.Shard(0)
	reasons := []string{
		"deadlock detected",
		"no such table: orders",
		"connection reset by peer",
		"value too long for type character varying(64)",
	}
	for from := 0; from < n; from += 1000 {
		var scores []redis.Z
		var letters []any
		for i := from; i < min(from+1000, n); i++ {
			id, died, reason := deadOrder(i), strconv.FormatInt(deadAt(i).UnixMilli(), 10), reasons[i%len(reasons)]
			if i == n-1 {
				reason = "the only one of its kind"
			}
			letter, err := json.Marshal(map[string]string{
				"state": "dead",
				"message": keyspace.EncodeMessage(
					sale.Order{ID: id, SaleID: "s-1", Buyer: "buyer-" + strconv.Itoa(i), Slot: 1, Serial: int64(i + 1)},
				),
				"reason":  reason,
				"history": died + "\t" + reason + "\n",
				"crashes": "0",
				"died":    died,
				"unit":    "none",
			})
			if err != nil {
				t.Fatal(err)
			}
			scores = append(scores, redis.Z{Score: float64(deadAt(i).UnixMilli()), Member: id.String()})
			letters = append(letters, id.String(), letter)
		}
		if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.ZAdd(ctx, shard.Dead().Times(), scores...)
			p.HSet(ctx, shard.Dead().Letters(), letters...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

var deadSince = time.Now().Add(-time.Hour).Truncate(time.Second)

func deadAt(i int) time.Time       { return deadSince.Add(time.Duration(i) * time.Millisecond) }
func deadOrder(i int) sale.OrderID { return sale.NewOrderID(deadSince, uint32(i+1)) }

// read is a response of the admin API.
func (s *shop) read(path string) string {
	s.t.Helper()
	var raw json.RawMessage
	body := s.adminAPI(http.MethodGet, path, nil)
	raw, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(raw)
}

// resident is a process's memory, in MB.
type resident struct{ now, most int }

func memory(t *testing.T, pid int) resident {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	kilobytes := func(name string) int {
		_, rest, _ := strings.Cut(string(status), name+":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return 0
		}
		n, _ := strconv.Atoi(fields[0])
		return n / 1024
	}
	return resident{kilobytes("VmRSS"), kilobytes("VmHWM")}
}
