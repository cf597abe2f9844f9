package nginx

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

func TestRequestIDsAreUnique(t *testing.T) {
	out := requireLua(t).run(t, `
		local id = require "sluice.request_id"
		local seen, last, n, number = {}, {}, 0, nil
		local function draw(times)
			for _ = 1, times do
				number = id.next()
				if seen[number] or not number:find("^%x+$") or #number ~= 32 then
					error("an id that is used twice or is malformed: " .. number)
				end
				seen[number], n = true, n + 1
				local digit = number:sub(-1)
				last[digit] = (last[digit] or 0) + 1
			end
		end
		id.init(("random bytes"):rep(3):sub(1, 28))
		id.init_worker(100, 1000)
		draw(50000)
		id.init_worker(101, 1000) -- another worker
		draw(50000)
		id.init_worker(100, 1001) -- a later worker with the same process id
		draw(50000)
		id.init_worker(100, 1002) -- a worker whose counter wraps
		draw(100)
		id.wrap(10)
		draw(50000)
		local first = next(seen):sub(1, 8)
		id.init(require("sluice.random").bytes(28))
		id.init_worker(100, 1000)
		draw(50000)
		if number:sub(1, 8) == first then
			return "the first digits do not differ between two starts of nginx"
		end
		for digit, times in pairs(last) do
			if times < n / 16 * 0.9 or times > n / 16 * 1.1 then
				return digit .. " is the last digit of " .. times
			end
		end
		return n`)
	if out != "250100" {
		t.Error(out)
	}
}

// Each byte of the key changes the ids.
func TestEveryByteOfTheKeyChangesRequestIDs(t *testing.T) {
	out := requireLua(t).run(t, `
		local id = require "sluice.request_id"
		local function first(secret)
			id.init(secret)
			id.init_worker(7, 9)
			return id.next()
		end
		local secret = ("x"):rep(28)
		local number = first(secret)
		for i = 1, #secret do
			if first(secret:sub(1, i - 1) .. "y" .. secret:sub(i + 1)) == number then
				return "byte " .. i .. " does nothing"
			end
		end
		return first(secret) == number and "all"`)
	if out != "all" {
		t.Error(out)
	}
}

// Each response of Lua and of nginx, in each worker, has a unique id, which is in the access log.
func TestEveryResponseHasItsOwnLoggedID(t *testing.T) {
	e := startEdge(t,
		`return { rules = { { name = "ip", key = "ip", rate = "1r/m", burst = 9, match = { path = "/v1/sales/*" } } } }`, nil)
	requests := map[int]string{
		200: "GET /healthz HTTP/1.1\r\nHost: a",
		429: "GET /v1/sales/1 HTTP/1.1\r\nHost: a",
		405: "POST /healthz HTTP/1.1\r\nHost: a",
		404: "GET /admin HTTP/1.1\r\nHost: a",
		400: "GET /\x01 HTTP/1.1\r\nHost: a",
		431: "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 40_000),
	}
	const times = 15
	statusOf := map[string]int{}
	send := func() {
		for status, head := range requests {
			for range times {
				answer := e.raw(head + "\r\nConnection: close\r\nX-Request-Id: mine\r\n\r\n")
				_, rest, _ := strings.Cut(answer, "X-Request-Id: ")
				id, _, _ := strings.Cut(rest, "\r\n")
				if statusOf[id] != 0 || !hex32.MatchString(id) || strings.Count(answer, "X-Request-Id") != 1 {
					t.Fatalf("want %d: not a unique id: %s", status, answer)
				}
				statusOf[id] = status
			}
		}
	}
	for range 10 { // the burst
		if got := e.do("GET", "/v1/sales/1"); got.status != 200 {
			t.Fatalf("%+v", got)
		}
	}
	send()
	generationOf := func() string { return e.do("GET", "/v1/sales/1").header.Get("X-Request-Id")[:8] }
	before := generationOf()
	if err := e.cfg.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "the new workers answer",
		func() bool { e.transport.CloseIdleConnections(); return generationOf() != before })
	send()
	if err := e.stop(); err != nil { // the workers write the rest of the log
		t.Fatal(err)
	}
	generations, workers := map[string]bool{}, map[string]bool{}
	for status := range requests {
		if status == 200 {
			continue // a /healthz that is answered is not logged
		}
		logged := map[string]bool{}
		for _, entry := range e.logged(2*times, status) {
			id := fmt.Sprint(entry["request_id"])
			logged[id] = true
			if status == 429 {
				generations[id[:8]], workers[fmt.Sprint(entry["worker"])] = true, true
			}
		}
		for id, with := range statusOf {
			if with == status && !logged[id] {
				t.Errorf("%s of a response with %d is not in the log", id, status)
			}
		}
	}
	if len(generations) != 2 || len(workers) < 3 {
		t.Errorf("%d generations and %d workers have refused requests, want 2 and at least 3", len(generations),
			len(workers))
	}
}
