package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sluice/test/testenv"
)

// A backend is ready while it can use one of its shards. An operator sees the others.
func TestHealthNamesUnavailableShards(t *testing.T) {
	for shards, want := range map[string]struct{ text, json string }{
		"": {"", "{\n  \"ready\": true\n}\n"},
		`,"unavailable_shards":[2]`: {
			"ready without shard 2 (sluice shard list has the reason)\n",
			"{\n  \"ready\": true,\n  \"unavailable_shards\": [\n    2\n  ]\n}\n",
		},
		`,"unavailable_shards":[1,3]`: {
			"ready without shards 1, 3 (sluice shard list has the reason)\n",
			"{\n  \"ready\": true,\n  \"unavailable_shards\": [\n    1,\n    3\n  ]\n}\n",
		},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"status":"ready"%s}`, shards)
		}))
		defer s.Close()
		for format, wantOut := range map[string]string{"": want.text, " --json": want.json} {
			code, stdout, stderr := call(t, "health --server "+s.URL+format)
			if code != exitOK || stdout != wantOut || stderr != "" {
				t.Errorf("%s%s: exit %d, %q, %q; want %q", shards, format, code, stdout, stderr, wantOut)
			}
		}
	}
}

// Beside a watcher the environment has a Redis and no database; only what it names is checked.
func TestHealthChecksWhatTheEnvironmentNames(t *testing.T) {
	address := testenv.FreeAddress(t)
	for name, c := range map[string]struct{ value, begins string }{
		envRedis:    {"redis://" + address, "sluice: not ready: Redis: dial tcp " + address + ": connect: connection refused\n"},
		envDatabase: {"postgres://sluice@" + address + "/sluice", "sluice: store: probe: temporarily unavailable: "},
	} {
		code, _, stderr := sluice(t, map[string]string{envData: t.TempDir(), name: c.value}, "health")
		if code != exitFail || !strings.HasPrefix(stderr, c.begins) || strings.Contains(stderr, ";") {
			t.Errorf("%s: exit %d, %q, want %q", name, code, stderr, c.begins)
		}
	}
}

// A URL that no store can have is a wrong configuration.
func TestHealthRejectsInvalidURLs(t *testing.T) {
	for name, want := range map[string]string{
		envRedis: ": bad Redis URL: want redis://", envDatabase: ": database URL: must begin with postgres:// or sqlite:",
	} {
		code, _, stderr := sluice(t, map[string]string{envData: t.TempDir(), name: "mysql://127.0.0.1"}, "health")
		if code != exitUsage || !strings.HasPrefix(stderr, "sluice: "+name+want) {
			t.Errorf("exit %d, %q, want %q", code, stderr, name+want)
		}
	}
}

// A worker is not ready while Redis responds and rejects writes.
func TestHealthReportsRedisThatRejectsWrites(t *testing.T) {
	r := testenv.StartRedis(t)
	env := map[string]string{envData: t.TempDir(), envRedis: r.URL}
	if code, _, stderr := sluice(t, env, "health"); code != 0 {
		t.Errorf("writable: exit %d, %q", code, stderr)
	}
	if err := r.Client().ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	const want = "sluice: not ready: Redis: NOREPLICAS "
	if code, _, stderr := sluice(t, env, "health"); code != exitFail || !strings.HasPrefix(stderr, want) {
		t.Errorf("too few replicas: exit %d, %q, want %q", code, stderr, want)
	}
	if keys := r.Client().DBSize(t.Context()).Val(); keys != 0 {
		t.Errorf("the checks have written %d keys", keys)
	}
}

// The data directory of a `sluice up` that starts has no address yet. That its stores are ready is not enough.
func TestHealthOfAStartingUpFails(t *testing.T) {
	r := testenv.StartRedis(t)
	dir := t.TempDir()
	unlock, err := dataDir(dir).open()
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	want := "sluice: not ready: sluice up has not completed a start with --data " + dir + "\n"
	for _, env := range []map[string]string{{envData: dir}, {envData: dir, envRedis: r.URL}} {
		if code, _, stderr := sluice(t, env, "health"); code != exitFail || stderr != want {
			t.Errorf("%v: exit %d, %q, want %q", env, code, stderr, want)
		}
	}
}

// A lock file that a killed `sluice up` has left does not replace the stores of the environment.
func TestHealthIgnoresTheLockFileOfAnEndedProcess(t *testing.T) {
	r := testenv.StartRedis(t)
	dir := t.TempDir()
	unlock, err := dataDir(dir).open()
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if code, _, stderr := sluice(t, map[string]string{envData: dir, envRedis: r.URL}, "health"); code != exitOK {
		t.Errorf("exit %d, %q", code, stderr)
	}
	want := "sluice: not ready: sluice up has not completed a start with --data " + dir + "\n"
	if code, _, stderr := sluice(t, map[string]string{envData: dir}, "health"); code != exitFail || stderr != want {
		t.Errorf("without a store: exit %d, %q, want %q", code, stderr, want)
	}
}
