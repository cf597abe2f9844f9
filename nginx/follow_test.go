package nginx

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/internal/token"
	"sluice/internal/token/mirror"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

const byToken = `return { rules = { { name = "token", key = "token", rate = "1000r/s", burst = 100000 } } }`

// startMirrored runs an edge with the keys of a provider.
func startMirrored(t *testing.T, p *tokentest.Provider, change func(*Config)) *edge {
	t.Helper()
	keys, err := token.Open(p.Serve(t), "", token.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if err := keys.Await(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	m, err := mirror.New(keys, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	testenv.Run(t, func(ctx context.Context) error { m.Run(ctx); return nil })
	return startEdge(t, byToken, func(c *Config) {
		c.Secret, c.TokenKeys, c.KeysSocket = "", m.File(), m.Socket()
		if change != nil {
			change(c)
		}
	})
}

// A token of a key that the provider has just published passes at its first request, and the edge is not reloaded.
func TestEdgeFollowsKeysOfAURL(t *testing.T) { variants(t, testEdgeFollowsKeysOfAURL) }

func testEdgeFollowsKeysOfAURL(t *testing.T, f *variant) {
	p := tokentest.NewProvider(token.EdDSA, "first")
	e := startMirrored(t, p, f.on(t))
	send := func(raw string) int { return e.do("GET", "/", "Authorization", "Bearer "+raw).status }
	old := p.Sign("ann")
	if got := send(old); got != 200 {
		t.Fatalf("a token of the first key: %d", got)
	}
	pids := e.allWorkers()
	p.Rotate("second")
	next := p.Sign("bob")
	testenv.Eventually(t, time.Minute, "the new key is fetched in time", func() bool {
		begin := time.Now()
		got := send(next)
		if got == 401 && time.Since(begin) > 2*time.Second { // an edge waits no longer for a slow fetch
			return false
		}
		if got != 200 {
			t.Errorf("a token of a new key: %d", got)
		}
		return true
	})
	testenv.Eventually(t, time.Minute, "both keys in all workers", func() bool {
		for range 8 { // new connections, so all workers are likely to answer
			e.transport.CloseIdleConnections()
			if send(old) != 200 || send(next) != 200 {
				return false
			}
		}
		return true
	})
	if n := p.Fetches(); n != 2 {
		t.Errorf("%d fetches, want 2", n)
	}
	p.Answer(http.StatusInternalServerError)
	p.Rotate("third")
	if got := send(p.Sign("cid")); got != 401 {
		t.Errorf("a key that cannot be fetched: %d", got)
	}
	if got := send(old); got != 200 {
		t.Errorf("while the provider fails: %d", got)
	}
	p.Answer(http.StatusOK)
	p.Remove("first")
	if got := send(p.Sign("cid")); got != 200 {
		t.Errorf("after the provider recovered: %d", got)
	}
	testenv.Eventually(t, time.Minute, "the removed key is rejected by all workers", func() bool {
		for range 8 {
			e.transport.CloseIdleConnections()
			if send(old) != 401 {
				return false
			}
		}
		return true
	})
	if now := e.allWorkers(); !slices.Equal(now, pids) {
		t.Errorf("the workers are %d, and were %d: the edge was reloaded", now, pids)
	}
}

// A worker that replaces a crashed one has the current keys from its first request on.
func TestReplacedWorkerHasTheCurrentKeys(t *testing.T) {
	p := tokentest.NewProvider(token.EdDSA, "first")
	e := startMirrored(t, p, func(c *Config) { c.Workers = 1 })
	send := func(raw string) int { return e.do("GET", "/", "Authorization", "Bearer "+raw).status }
	old := p.Sign("ann")
	p.Rotate("second")
	p.Remove("first")
	if next, before := send(p.Sign("bob")), send(old); next != 200 || before != 401 {
		t.Fatalf("after a rotation: %d and %d", next, before)
	}
	if err := syscall.Kill(e.allWorkers()[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.transport.CloseIdleConnections()
	status := 0
	testenv.Eventually(t, time.Minute, "another worker answers", func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url("/"), nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+old)
		response, err := e.transport.RoundTrip(request)
		if err != nil {
			return false
		}
		response.Body.Close()
		status = response.StatusCode
		return true
	})
	if status != 401 {
		t.Errorf("a token of a removed key at a new worker: %d", status)
	}
}

// A flood of tokens of unknown keys causes few fetches, and does not delay other buyers' requests.
func TestEdgeFetchesFewTimesForUnknownKeys(t *testing.T) {
	p := tokentest.NewProvider(token.EdDSA, "first")
	e := startMirrored(t, p, nil)
	good := "Bearer " + p.Sign("ann")
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for i := range 100 {
				header := fmt.Sprintf(`{"alg":"EdDSA","kid":"%d-%d"}`, c, i)
				raw := tokentest.Segments(header, `{"sub":"eve","exp":4102444800}`) + ".AA"
				if got := e.do("GET", "/", "Authorization", "Bearer "+raw); got.status != 401 {
					t.Errorf("a forged token: %d", got.status)
				}
				if got := e.do("GET", "/", "Authorization", good); got.status != 200 {
					t.Errorf("a valid token during the flood: %d", got.status)
				}
			}
		})
	}
	before := time.Now()
	clients.Wait()
	if n, most := p.Fetches(), 1+3+int(time.Since(before)/(10*time.Second))+1; n < 2 || n > most {
		t.Errorf("%d fetches, want 2 to %d", n, most)
	}
	if log := e.log.String(); strings.Contains(log, "[error]") {
		t.Errorf("the error log: %s", log)
	}
}

// An edge whose mirror has stopped keeps its keys.
func TestEdgeKeepsKeysWithoutItsMirror(t *testing.T) {
	p := tokentest.NewProvider(token.EdDSA, "first")
	e := startMirrored(t, p, func(c *Config) { c.KeysSocket = "/nonexistent/refresh.sock" })
	good := "Bearer " + p.Sign("ann")
	p.Rotate("second")
	if got := e.do("GET", "/", "Authorization", "Bearer "+p.Sign("bob")); got.status != 401 {
		t.Errorf("a token of a key that cannot be requested: %d", got.status)
	}
	if got := e.do("GET", "/", "Authorization", good); got.status != 200 {
		t.Errorf("a token of a known key: %d", got.status)
	}
}

// A file of keys that cannot be read is logged once, and again after it has been read in between.
func TestUnreadableKeysAreLoggedOnce(t *testing.T) {
	server, stop := startLua(t, "1m")
	defer stop()
	got := server.run(t, `
		local follow = require "sluice.token.follow"
		local log, errors = ngx.log, {}
		ngx.log = function(level, ...)
			if level == ngx.ERR then
				errors[#errors + 1] = #errors .. " " .. table.concat { ... }
			end
		end
		local path = os.tmpname()
		local function write(text)
			local file = io.open(path, "w")
			file:write(text)
			file:close()
		end
		write "first"
		follow.init(nil, path, "/none.sock")
		local read = follow.init_worker -- it reads the file
		os.remove(path)
		read() read() read()
		write "first"
		read()
		os.remove(path)
		read() read()
		write "second"
		read() read()
		os.remove(path)
		ngx.log = log
		return (table.concat(errors, "\n"):gsub(path, "PATH"))
	`)
	const problem = "token keys are invalid, keeping the previous ones: "
	if want := "0 " + problem + "PATH: No such file or directory\n1 " + problem + "PATH: No such file or directory\n2 " +
		problem + "not a JSON object in UTF-8 without repeated names"; got != want {
		t.Errorf("the log has\n%s\nwant\n%s", got, want)
	}
}
