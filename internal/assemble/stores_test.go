package assemble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// A process exits if Redis rejects its user, password or database, because a retry has the same result.
func TestRedisThatRejectsTheClientEndsTheStart(t *testing.T) {
	r := testenv.StartRedis(t)
	if err := r.Client().ConfigSet(t.Context(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	database := storetest.SQLite(t)
	for url, want := range map[string]string{ // of the error; empty: none
		"redis://" + r.Addr:                                      "NOAUTH",
		"redis://:wrong@" + r.Addr:                               "WRONGPASS",
		"redis://:secret@" + r.Addr + "/99":                      "DB index is out of range",
		"redis://:secret@" + r.Addr:                              "",
		fmt.Sprintf("redis://127.0.0.1:%d", testenv.FreePort(t)): "", // it may start later
	} {
		cfg := StoresConfig{
			Redis: url, Database: database, Shards: 1, Driver: DriverList, Log: slog.New(slog.DiscardHandler),
		}
		s, err := OpenStores(t.Context(), cfg)
		if err == nil {
			s.Close()
		}
		errs := map[string]error{"OpenStores": err}
		if want != "" {
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			errs["RunWatcher"] = RunWatcher(ctx, cfg)
			stop()
		}
		for of, err := range errs {
			_, bad := errors.AsType[UsageError](err)
			if bad != (want != "") || bad && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: %v, want a UsageError with %q", url, of, err, want)
			}
			// A URL with a password is in the variable.
			if bad && !strings.HasSuffix(err.Error(), " in --redis or SLUICE_REDIS_URL") {
				t.Errorf("%s, %s: %v, want the flag and the variable", url, of, err)
			}
		}
	}
}

func TestWarningAboutEviction(t *testing.T) {
	r := testenv.StartRedis(t)
	for policy, want := range map[string]int{"noeviction": 0, "allkeys-lru": 1} {
		if err := r.Client().ConfigSet(t.Context(), "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		s, err := OpenStores(t.Context(), StoresConfig{
			Redis: r.URL, Database: storetest.SQLite(t), Shards: 3, Driver: DriverList,
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if n := strings.Count(log.String(), "set maxmemory-policy noeviction"); n != want {
			t.Errorf("%s: %d warnings, want %d: %s", policy, n, want, log.String())
		}
	}
}

// At every step a process waits for an unavailable database, returns other errors, and ends with its context.
func TestUnavailableDatabaseIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tries, once := 0, false
		try := func(answers ...error) error {
			tries = 0
			return awaitDatabase(ctx, slog.New(slog.DiscardHandler), once, func() error {
				tries++
				return answers[min(tries, len(answers))-1]
			})
		}
		away, wrong := fmt.Errorf("order: shards: %w: connection reset", sale.ErrUnavailable), errors.New(
			"the database has no shards",
		)
		if err := try(away, away, away, nil); err != nil || tries != 4 {
			t.Errorf("%v after %d tries", err, tries)
		}
		if err := try(away, wrong); !errors.Is(err, wrong) || tries != 2 {
			t.Errorf("%v after %d tries", err, tries)
		}
		once = true
		if err := try(away, nil); !errors.Is(err, sale.ErrUnavailable) || tries != 1 {
			t.Errorf("a command that does not wait: %v after %d tries", err, tries)
		}
		once = false
		time.AfterFunc(time.Minute, cancel)
		if err := try(away); err == nil || tries < 10 || tries > 20 {
			t.Errorf("%v after %d tries within a minute", err, tries)
		}
	})
}
