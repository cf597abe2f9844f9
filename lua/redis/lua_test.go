package redisscript

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

func TestScriptsHaveHeaders(t *testing.T) {
	for _, name := range Names() {
		text := Source(name)
		if !strings.HasPrefix(text, "-- "+name+": ") {
			t.Errorf("%s.lua: the first line does not begin with the name", name)
		}
		for _, part := range []string{"\n-- KEYS 1 ", "\n-- ARGV ", "\n-- Returns "} {
			if !strings.Contains(text, part) {
				t.Errorf("%s.lua: the header has no %q", name, part)
			}
		}
		if include.MatchString(text) {
			t.Errorf("%s.lua: an include contains an include", name)
		}
	}
}

func TestIncludesAreUsed(t *testing.T) {
	used := map[string]bool{}
	for _, name := range Names() {
		for _, m := range include.FindAllStringSubmatch(read(name+".lua"), -1) {
			used[m[1]] = true
		}
	}
	matches, err := fs.Glob(files, "include/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range matches {
		if name := strings.TrimSuffix(strings.TrimPrefix(m, "include/"), ".lua"); !used[name] {
			t.Errorf("no script includes %s", m)
		}
	}
}

// Redis Cluster requires that a script declares every key. The test finds the first argument of every command: it must
// be KEYS[n], a local that is assigned from KEYS, or a parameter of a local function.
func TestScriptsDeclareEveryKey(t *testing.T) {
	var (
		call = regexp.MustCompile(`\bp?call\('(\w+)'(?:, '(?:STREAM|GROUPS|CONSUMERS|CREATE|DELCONSUMER|GROUP', group, id, ` +
			`'COUNT', n, 'STREAMS)')?(?:, (unpack\(KEYS|[\w.\[\]]+))?`)
		locals     = regexp.MustCompile(`(?m)^local ([\w, ]+) =\s+KEYS\[`)
		parameters = regexp.MustCompile(`(?m)^local function \w+\(([\w, ]+)\)`)
	)
	found := 0
	for _, name := range Names() {
		text := Source(name)
		declared := map[string]bool{"requests[i]": true, "orders": true} // admit takes both from KEYS
		for _, list := range append(locals.FindAllStringSubmatch(text, -1), parameters.FindAllStringSubmatch(text, -1)...) {
			for n := range strings.SplitSeq(list[1], ", ") {
				declared[n] = true
			}
		}
		for _, c := range call.FindAllStringSubmatch(text, -1) {
			if c[1] == "TIME" || c[1] == "PUBLISH" || c[1] == "INFO" || c[1] == "CLUSTER" {
				continue
			}
			found++
			if !declared[c[2]] && !strings.HasPrefix(c[2], "KEYS[") && c[2] != "unpack(KEYS" {
				t.Errorf("%s.lua: %s of %q, which is not one of its KEYS", name, c[1], c[2])
			}
		}
	}
	if found < 200 {
		t.Errorf("found only %d commands", found)
	}
}

// A process that has lost its lock does not finish a move.
func TestMoveFinishRequiresTheLock(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	for _, owner := range []string{"", "another"} { // the lock has expired, or another process has acquired it
		if owner != "" {
			client.Set(t.Context(), "lock", owner, 0)
		}
		if got, err := Run(t.Context(), client, "move_finish", []string{"lock"}, "token", 100, "id").Text(); got != "fenced" {
			t.Errorf("with the lock of %q: %q, %v", owner, got, err)
		}
	}
}

// A step of a move that the target executes late, when the keys are copied or the shard was released there, deletes
// nothing.
func TestLateMoveClearDeletesNothing(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	step := func(name, want string) {
		t.Helper()
		got, err := Run(t.Context(), client, "move_clear", []string{"guard", "ready"}, 2, 7, name).Text()
		if got != want {
			t.Errorf("%s returned %q, %v; want %q", name, got, err, want)
		}
	}
	step("copy", "fenced") // the target has lost its guard
	server.HSet("guard", "fence", "1", "swapped", "1", "run_id", "server")
	_, _ = server.Lpush("ready", "left by an earlier move")
	step("clear", "ok")
	step("clear", "ok")
	step("copy", "ok")
	if server.Exists("ready") {
		t.Error("the target has a key of an earlier move")
	}
	_, _ = server.Lpush("ready", "7 s 1 2 bob")
	copied := server.Dump()
	step("copy", "ok")
	step("clear", "fenced")
	if after := server.Dump(); after != copied {
		t.Errorf("late steps left\n%s, want\n%s", after, copied)
	}
	if got, err := Run(t.Context(), client, "rebuild_finish", []string{"guard"}, "2 7", "server", 1).Text(); got != "ok" {
		t.Fatal(got, err)
	}
	released := server.Dump()
	for _, name := range []string{"clear", "copy", "abandon", "withdraw"} {
		step(name, "fenced")
	}
	if after := server.Dump(); after != released {
		t.Errorf("steps after the release left\n%s, want\n%s", after, released)
	}
}

// A move whose fence is equal to that of a rebuild of another deployment does not move its shard.
func TestMoveSlotChecksTheDeployment(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	server.HSet("guard", "fence", "2", "rebuilding", "2", "deployment", "7")
	before := server.Dump()
	got, err := Run(t.Context(), client, "move_slot", []string{"guard"}, 2, 100, "NODE", "id", 8).Text()
	if got != "fenced" {
		t.Errorf("move_slot of another deployment returned %q, %v", got, err)
	}
	if after := server.Dump(); after != before {
		t.Errorf("move_slot of another deployment left\n%s", after)
	}
}

// A script of a rebuild that is older than the fence, or of another deployment, changes nothing. rebuild_begin raises
// the fence.
func TestRebuildScriptsCheckTheFence(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	server.HSet("guard", "fence", "2", "deployment", "7")
	before := server.Dump()
	keys := []string{"guard", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"}
	tested := 0
	for _, name := range Names() {
		if !strings.HasPrefix(name, "rebuild_") && name != "restore_orders" || name == "rebuild_begin" {
			continue
		}
		tested++
		for _, mark := range []string{"1 7", "2 8", "2 0", "2", ""} {
			if got, err := Run(t.Context(), client, name, keys, mark).Text(); got != "fenced" {
				t.Errorf("%s with the mark %q returned %q, %v", name, mark, got, err)
			}
			if after := server.Dump(); after != before {
				t.Errorf("%s with the mark %q left\n%s", name, mark, after)
			}
		}
	}
	if tested < 9 {
		t.Errorf("found %d scripts", tested)
	}
}

// A stopped Redis, or a proxy, can execute a call of a rebuild late, after its repetition. Then it changes nothing: the
// next steps have been executed, or the rebuild has ended and orders have been sold since.
func TestLateRepetitionChangesNothing(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	shop := []any{"s", 0, 0, 1, 9, "", 0, "EUR", 9, 0, "", ""}
	for name, run := range map[string]struct {
		keys []string
		args []any
	}{
		"begin":                               {[]string{"unfinished", "consumers", "sales"}, []any{"server", ""}},
		"suspend_sales":                       {[]string{"sale"}, nil},
		"slots":                               {[]string{"buyers"}, []any{"ann", "5"}},
		"dead_letters":                        {[]string{"dead", "letters", "index"}, []any{"5", "5 s 1 1 ann", "its unit was sold again"}},
		"sale":                                {[]string{"sale", "stock", "sales", "returns"}, shop},
		"enqueue":                             {[]string{"unfinished"}, []any{0, "5 s 1 1 ann"}},
		"swap_queue":                          {[]string{"new", "ready", "delayed", "leases", "wake", "attempts", "crashes", "orders"}, nil},
		"resume_sales":                        {[]string{"sale"}, []any{1, "on"}},
		"resume_sales, one was removed since": {[]string{"removed"}, []any{1, "on"}},
		"finish":                              {nil, []any{"server", 1}},
	} {
		t.Run(name, func(t *testing.T) {
			server.FlushAll()
			server.HSet("guard", "fence", "2", "deployment", "7", "swapped", "2", "generation", "2", "run_id", "server",
				"shards", "1")
			server.HSet("sale", "version", "5", "switch", "paused", "stock", "9", "accepted", "4", "returned", "8")
			_ = server.Set("stock", "5")
			_, _ = server.Lpush("ready", "7 s 1 2 bob")
			script, _, _ := strings.Cut("rebuild_"+name, ",")
			wantSame(t, server, client, script, run.keys, run.args)
		})
	}
	t.Run("begin, while the queue is assembled", func(t *testing.T) {
		server.FlushAll()
		server.HSet("guard", "fence", "2", "deployment", "7", "rebuilding", "2")
		_, _ = server.Lpush("unfinished", "5 s 1 1 ann")
		wantSame(t, server, client, "rebuild_begin", []string{"unfinished", "consumers", "sales"}, []any{"server", ""})
	})
}

// wantSame fails unless the script of rebuild 2 returns "ok" and changes nothing.
func wantSame(t *testing.T, server *miniredis.Miniredis, client *redis.Client, name string, keys []string, args []any) {
	t.Helper()
	before := server.Dump()
	keys, args = append([]string{"guard"}, keys...), append([]any{"2 7"}, args...)
	if got, err := Run(t.Context(), client, name, keys, args...).Text(); got != "ok" {
		t.Errorf("%s returned %q, %v", name, got, err)
	}
	if after := server.Dump(); after != before {
		t.Errorf("%s left\n%s, want\n%s", name, after, before)
	}
}

// A sale that a rebuild or a move has suspended, and not rebuilt, is resumed as it was, also if replies are lost and
// the scripts are repeated, and if a repetition of rebuild_suspend_sales is executed late. A later rebuild does not
// resume sales that an interrupted one has suspended.
func TestSuspendedSaleIsResumedAsItWas(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	server.HSet("guard", "fence", "2", "deployment", "7")
	server.HSet("sale:paused", "version", "5", "switch", "paused", "stock", "9")
	server.HSet("sale:unknown", "stock", "9", "suspended", "1 3 on")
	before := server.Dump()
	run := func(name string, keys []string, args ...any) {
		t.Helper()
		for range 2 {
			if got, err := Run(t.Context(), client, name, keys, args...).Text(); got != "ok" {
				t.Fatalf("%s returned %q, %v", name, got, err)
			}
		}
	}
	run("rebuild_suspend_sales", []string{"guard", "sale:paused", "sale:unknown"}, "2 7")
	if server.HGet("sale:paused", "version") != "" || server.HGet("sale:paused", "switch") != "" {
		t.Error("the sale is not suspended")
	}
	run("rebuild_resume_sales", []string{"guard", "sale:paused", "sale:unknown"}, "2 7", "", "", "", "")
	run("rebuild_suspend_sales", []string{"guard", "sale:paused", "sale:unknown"}, "2 7")
	server.HSet("sale:unknown", "suspended", "1 3 on")
	server.HDel("guard", "swapped")
	if after := server.Dump(); after != before {
		t.Errorf("the sales are now\n%s, want\n%s", after, before)
	}
}

// A repetition of rebuild_resume_sales, after a lost reply, does not undo a change that was applied in between.
func TestRepeatedResumeKeepsALaterChange(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	for name, def := range map[string][]any{"rebuilt": {"5", "on"}, "not rebuilt": {"", ""}} {
		t.Run(name, func(t *testing.T) {
			server.FlushAll()
			server.HSet("guard", "fence", "2", "deployment", "7")
			server.HSet("sale:s", "version", "5", "switch", "on", "stock", "9")
			server.Set("stock", "9")
			run := func(name string, keys []string, want string, args ...any) {
				t.Helper()
				if got, err := Run(t.Context(), client, name, keys, args...).Text(); got != want {
					t.Fatalf("%s returned %q, %v", name, got, err)
				}
			}
			resume := func() {
				t.Helper()
				run("rebuild_resume_sales", []string{"guard", "sale:s"}, "ok", append([]any{"2 7"}, def...)...)
			}
			run("rebuild_suspend_sales", []string{"guard", "sale:s"}, "ok", "2 7")
			resume()
			run("update_sale", []string{"sale:s", "stock", "guard"}, "applied", 6, "paused", 0, 0, 1, 9, "", 0, "", "7")
			resume()
			version, to := server.HGet("sale:s", "version"), server.HGet("sale:s", "switch")
			if version != "6" || to != "paused" {
				t.Errorf("version %s, switch %s; want 6, paused", version, to)
			}
		})
	}
}
