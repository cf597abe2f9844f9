package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/client"
	"sluice/test/testenv"
)

// Bad input of shard move is one line and exit code 2, before anything is opened.
func TestShardMoveRejectsBadInput(t *testing.T) {
	const stores = " --database sqlite:/nonexistent/db --redis redis+cluster://127.0.0.1:1 --shards 4"
	for args, want := range map[string]string{
		"3":                           `--to ""`,
		"3 --to 10.0.0.6":             `--to "10.0.0.6"`,
		"3 --to :6379":                `--to ":6379"`,
		"3 --to 10.0.0.6:":            `--to "10.0.0.6:"`,
		"3 --to 10.0.0.6:0":           `--to "10.0.0.6:0"`,
		"3 --to 10.0.0.6:65536":       `--to "10.0.0.6:65536"`,
		"3 --to 10.0.0.6:redis":       `--to "10.0.0.6:redis"`,
		"4 --to 10.0.0.6:6379":        `"4" is not a shard: want a number from 0 to 3`,
		"three --to 10.0.0.6:6379":    `"three" is not a shard`,
		"--to 10.0.0.6:6379":          "SHARD is missing",
		"3 --to 10.0.0.6:6379 --to x": `--to "x"`,
	} {
		code, stdout, stderr := call(t, "shard move "+args+stores)
		if code != exitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %s%s, want %s", args, code, stdout, stderr, want)
		}
	}
}

// The reason of a shard can have a line for each Sentinel, and a row of the list is one line.
func TestShardListHasALinePerShard(t *testing.T) {
	cells := shardCells(client.Shard{Reason: "10.0.0.1: refused\n10.0.0.2: refused"})
	if got, want := cells[len(cells)-1], "not verified: 10.0.0.1: refused; 10.0.0.2: refused"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	cells = shardCells(client.Shard{Verified: true, Reason: "read-only"})
	if got, want := cells[len(cells)-1], "verified, but Redis rejects writes: read-only"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A command that needs the database of a running deployment neither creates it nor waits for it.
func TestAdminCommandsNeedAnExistingDatabase(t *testing.T) {
	dir := t.TempDir()
	typo := filepath.Join(dir, "ordres.db")
	for _, command := range []string{
		"shard move 3 --to 10.0.0.6:6379 --redis redis+cluster://127.0.0.1:1",
		"sale archive shoe --output " + dir + " --redis redis://127.0.0.1:1/0",
	} {
		for database, c := range map[string]struct {
			code int
			want string
		}{
			"sqlite:" + typo: {exitUsage, typo + " does not exist: name the database of the backends"},
			fmt.Sprintf("postgres://sluice@127.0.0.1:%d/orders", testenv.FreePort(t)): {
				exitFail, "the database cannot be used, and nothing was changed",
			},
		} {
			code, stdout, stderr := call(t, command+" --shards 4 --database "+database)
			if code != c.code || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, c.want) {
				t.Errorf("%s --database %s: exit %d, %s%s, want %s", command, database, code, stdout, stderr, c.want)
			}
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("files %v, %v", files, err)
	}
}
