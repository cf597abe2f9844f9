package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sluice/test/testenv"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// guesses are command lines that a person would try, right and wrong, in this order against one sluice up. $ADMIN and
// $PUBLIC are its listeners, $FILE a file of its own.
var guesses = []string{
	"version --json extra",
	"--version extra",
	"versoin", //nolint:misspell // a wrong command line
	"help nosuch",
	"start",
	"--port 80 up",
	"up --port 80",
	"up --listen 8080",
	"up --listen unix:/run/sluice.sock",
	"up --listen 192.0.2.1:80 --data $DATA/other",
	"up --log yaml",
	"up --data $DATA",
	"up --redis localhost:6379 --data $DATA/other",
	"worker --redis unix:redis.sock",
	"worker --redis unix:///run/redis.sock/0?database=1",
	"up --database mysql://root@localhost/shop --data $DATA/other",
	"status",
	"sales",
	"audit demo",
	"pause demo",
	"list",
	"sale",
	"sale ls",
	"sale lst",
	"sale list extra",
	"sale list --server $ADMIN",
	"sale list --server $PUBLIC",
	"sale list --server nonsense",
	"sale list --server ftp://localhost",
	"sale list --data $DATA/none",
	"TOKEN=wrong sale list",
	"sale create",
	"sale create --title Shoe --price 9.99 --stock 5",
	"sale create --title Shoe --price 9.9EUR --stock 5",
	"sale create --title Shoe --price EUR9.99 --stock 5",
	"sale create --title Shoe --price 9,99EUR --stock 5",
	"sale create --title Shoe --price 9.99eur --stock 5",
	"sale create --title Shoe --price $9.99 --stock 5",
	"sale create --title Shoe --price 9.99EUR --stock ten",
	"sale create --title Shoe --price 9.99EUR --stock 0",
	"sale create --title Shoe --price 9.99EUR --stock -5",
	"sale create --title Shoe --price 9.99EUR --stock 5 --opens tomorrow",
	"sale create --title Shoe --price 9.99EUR --stock 5 --hold soon",
	"sale create --id a/b --title Shoe --price 9.99EUR --stock 5",
	"sale create --title Shoe --price 9.99EUR --stock 5 --closes -1h",
	"sale create --price 9.99EUR --stock 5 --per-buyer 6",
	"sale create --id shoe --titel Shoe --price 9.99EUR --stock 5",
	"sale create --id shoe --title Shoe --price 9.99EUR --stock 5",
	"sale create --id shoe --title Shoe --price 9.99EUR --stock 5",
	"sale show",
	"sale show nosuch",
	"sale show shoe extra",
	"sale restock shoe",
	"sale restock shoe --add 3",
	"sale pause shoe",
	"sale resume shoe",
	"sale open shoe",
	"sale remove shoe",
	"sale delete shoe",
	"sale close nosuch",
	"sale close shoe",
	"sale close shoe --yes",
	"sale restock shoe --add 3",
	"sale audit nosuch",
	"order show",
	"order ls --sale shoe",
	"order ls --sale nosuch",
	"order ls --sale nosuch --json",
	"payment ls --sale nosuch",
	"order list --status sold",
	"order cancel 1",
	"order cancel one",
	"queue list",
	"dead ls",
	"dead ls --sale nosuch",
	"dead retry",
	"dead retry 1",
	"group rm nosuch",
	"group rm nosuch --yes",
	"webhook ls",
	"webhook add example.com/hook",
	"webhook rotate nosuch",
	"webhook deliveries nosuch --after x",
	"webhook deliveries nosuch --state lost",
	"token",
	"token ann",
	"token check nonsense",
	"policy check",
	"policy check nosuch.lua",
	"policy import nosuch.conf",
	"health",
	"health --server $ADMIN",
	"gateway --upstream ftp://10.0.0.1:1",
	"gateway --upstream 10.0.0.1",
	"gateway --upstream unix:backend.sock",
	"gateway --upstream 10.0.0.1:80 --limit-redis redis+cluster://10.0.0.2:6379",
	"edge relaod",
	"stop",
	"help sale",
	"backend",
	"worker",
	"rehearse nosuch",
	"rehearse shoe --buyers many",
	"bench queue --svg /nosuch/queues.svg",
	"bench queue --svg $DATA",
	"keys new --kid k1 --alg ES999",
	"completion tcsh",
}

// What differs between two runs.
var (
	timeText = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	goText   = regexp.MustCompile(`go1\.\d+(\.\d+)?`)
)

// Commands that a person would guess, right and wrong, print what testdata/guesses.txt holds: a result, or one line
// that names the thing and the remedy. After an intended change: go test -run Guess ./cmd/sluice -update.
func TestGuesses(t *testing.T) {
	t.Chdir(t.TempDir()) // without .sluice and lua/policy.lua
	golden := goldenFile
	dir := filepath.Join(testenv.MemoryDir(t), "data")
	at := startUp(t, dir)
	replace := strings.NewReplacer("$ADMIN", at.Admin, "$PUBLIC", at.Public, "$DATA", dir)
	restore := strings.NewReplacer(at.Admin, "$ADMIN", at.Public, "$PUBLIC", dir, "$DATA",
		strings.TrimPrefix(at.Admin, "http://"), "$ADMIN", strings.TrimPrefix(at.Public, "http://"), "$PUBLIC")

	var got strings.Builder
	for _, guess := range guesses {
		env := map[string]string{envData: dir, envAdminName: "ann"}
		line, wrong := strings.CutPrefix(guess, "TOKEN=wrong ")
		if wrong {
			env[envAdminToken] = "wrong"
		}
		code, stdout, stderr := sluice(t, env, strings.Fields(replace.Replace(line))...)
		if code != exitOK && strings.Count(stderr, "\n") != 1 {
			t.Errorf("sluice %s: the error is not one line: %q", line, stderr)
		}
		text := restore.Replace(shortened(stdout) + stderr)
		text = goText.ReplaceAllString(timeText.ReplaceAllString(text, "TIME"), "GO")
		fmt.Fprintf(&got, "$ sluice %s\n%s[exit %d]\n\n", guess, text, code)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	compareBlocks(t, got.String(), string(want))
}

// goldenFile is absolute: tests change the directory.
var goldenFile = func() string {
	path, err := filepath.Abs(filepath.Join("testdata", "guesses.txt"))
	if err != nil {
		panic(err)
	}
	return path
}()

// compareBlocks compares two golden texts command by command.
func compareBlocks(t *testing.T, got, want string) {
	t.Helper()
	have, wanted := strings.Split(got, "\n\n$ "), strings.Split(want, "\n\n$ ")
	for i := range max(len(have), len(wanted)) {
		switch {
		case i >= len(have):
			t.Errorf("missing: %s", wanted[i])
		case i >= len(wanted):
			t.Errorf("not in %s: %s", goldenFile, have[i])
		case have[i] != wanted[i]:
			t.Errorf("got:\n%s\nwant:\n%s", have[i], wanted[i])
		}
	}
}

// shortened returns the first line of a help text, and any other text unchanged.
func shortened(text string) string {
	if first, rest, ok := strings.Cut(text, "\n"); ok && strings.Contains(rest, "\nUsage:\n") {
		return first + "\n(help)\n"
	}
	return text
}

// slowMachine matches the warnings of calls that a slow machine does not answer in time.
var slowMachine = regexp.MustCompile(`(?m)^.* WRN .*i/o timeout"$\n`)

// startUp runs sluice up until the test ends, and returns where it listens.
func startUp(t *testing.T, dir string) server {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	banner, out := io.Pipe()
	var log bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		env := map[string]string{}
		code := run(ctx, []string{"up", "--log", "text", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", dir},
			func(name string) string { return env[name] }, out, &log)
		out.Close()
		ended <- code
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != exitOK {
			t.Errorf("sluice up: exit %d: %s", code, &log)
		}
		text := slowMachine.ReplaceAllString(log.String(), "")
		if strings.Contains(text, "WRN") || strings.Contains(text, "Redis is verified") ||
			!strings.Contains(text, "INF edge listening") {
			t.Errorf("the log of a normal start begins with the listening edge and has no warning: %s", text)
		}
	})
	if _, err := banner.Read(make([]byte, 1<<16)); err != nil {
		<-ended
		ended <- exitFail
		t.Fatalf("sluice up: %v: %s", err, &log)
	}
	go io.Copy(io.Discard, banner)
	at, err := dataDir(dir).server()
	if err != nil {
		t.Fatal(err)
	}
	return at
}
