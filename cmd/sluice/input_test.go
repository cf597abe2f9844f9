package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wantUsage runs sluice with a server that does not exist, and wants exit 2 with one line.
func wantUsage(t *testing.T, want string, args ...string) {
	t.Helper()
	env := map[string]string{envSecret: testSecret, envServer: "127.0.0.1:1", envAdminToken: "hush", envData: t.TempDir()}
	if code, _, stderr := sluice(t, env, args...); code != exitUsage || stderr != "sluice: "+want+"\n" {
		t.Errorf("sluice %q: exit %d, %q, want %q", args, code, stderr, want)
	}
}

// A flag that names a large file, or a device without an end, does not fill the memory.
func TestLargeFilesAreRejected(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, []byte(strings.Repeat("x", 1<<20+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantUsage(t, "--description: "+large+" has more than 8000 bytes", "sale", "describe", "shoe", "--description", large)
	wantUsage(t, "--tls-cert: "+large+" has more than 1048576 bytes; --tls-key: "+large+" has more than 1048576 bytes",
		"gateway", "--upstream", "127.0.0.1:1", "--tls-cert", large, "--tls-key", large)
}

// JSON would replace the letters of another encoding.
func TestDescriptionMustBeUTF8(t *testing.T) {
	file := write(t, "latin1.md", "Gr\xf6\xdfe 42")
	want := "--description: " + file + " is not UTF-8 text: convert it"
	wantUsage(t, want, "sale", "describe", "shoe", "--description", file)
}

// A heading that follows a byte order mark would be no heading.
func TestDescriptionWithAByteOrderMark(t *testing.T) {
	var body map[string]string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, "{}")
	}))
	defer s.Close()
	env := map[string]string{envServer: s.URL, envAdminToken: "hush"}
	file := write(t, "shoe.md", "\ufeff# The shoe")
	code, _, stderr := sluice(t, env, "sale", "describe", "shoe", "--description", file)
	if code != exitOK || body["description"] != "# The shoe" {
		t.Errorf("exit %d, %s, and the description %q", code, stderr, body["description"])
	}
}

// A value is empty if a variable of a script is not set. Without it, more dead orders would be settled, or those of the
// queue instead of the events of a group, more webhooks would be sent again, a repeated command would create or add
// again, a sale would not end, its description would be removed, an endpoint would receive the events of all sales, an
// edge would serve without TLS, or accept the tokens of other applications, a list would have the rows of all sales or
// buyers, and a command would use the server of the data directory.
func TestEmptyValueIsRejected(t *testing.T) {
	const empty = " is empty: name a value, or leave it out"
	for _, flag := range []string{"id", "closes"} {
		wantUsage(t, "--"+flag+empty, "sale", "create", "--title", "x", "--stock", "1", "--price", "1EUR", "--"+flag, "")
	}
	for _, flag := range []string{"picture", "description"} {
		wantUsage(t, "--"+flag+empty, "sale", "describe", "shoe", "--"+flag, "")
	}
	for _, flag := range []string{"type", "sale"} {
		wantUsage(t, "--"+flag+empty, "webhook", "add", "https://shop.example", "--"+flag, "")
	}
	wantUsage(t, "--token-audience"+empty, "gateway", "--upstream", "127.0.0.1:1", "--token-audience", "")
	wantUsage(t, "--tls-cert"+empty+"; --tls-key"+empty,
		"gateway", "--upstream", "127.0.0.1:1", "--tls-cert", "", "--tls-key", "")
	wantUsage(t, "--key"+empty, "sale", "restock", "shoe", "--add", "1", "--key", "")
	for _, flag := range []string{"sale", "error-contains", "died-after", "died-before"} {
		for _, verb := range []string{"retry", "cancel"} {
			wantUsage(t, "--"+flag+empty, "dead", verb, "--all", "--"+flag, "")
		}
	}
	for _, verb := range []string{"retry", "cancel", "list"} {
		wantUsage(t, "--group"+empty, "dead", "--group", "", verb)
	}
	for _, list := range []struct{ command, flag string }{
		{"dead", "sale"}, {"order", "sale"}, {"order", "buyer"}, {"order", "status"}, {"payment", "sale"},
		{"payment", "order"},
	} {
		wantUsage(t, "--"+list.flag+empty, list.command, "list", "--"+list.flag, "")
	}
	wantUsage(t, "--state"+empty, "webhook", "deliveries", "ep_1", "--state", "")
	for _, command := range [][]string{{"sale", "list"}, {"dead", "retry", "--all"}, {"group", "list"}, {"health"}} {
		wantUsage(t, "--server"+empty, append(command, "--server", "")...)
	}
	wantUsage(t, "--since"+empty, "webhook", "redeliver", "ep_1", "--failed", "--since", "")
}

// The workload of a rehearsal is one that this machine can simulate.
func TestRehearseRejectsInvalidWorkloads(t *testing.T) {
	for flag, want := range map[string]string{
		"buyers=0": "--buyers must be between 1 and 500000",
		"buyers=500001": "--buyers must be between 1 and 500000; 500001 buyers within 10s are 226527 arrivals per second at " +
			"the peak: one machine simulates at most 50000",
		"bots=NaN":     "--bots must be between 0 and 1",
		"bots=1.01":    "--bots must be between 0 and 1",
		"span=0s":      "--span must be between 100ms and 30m",
		"span=30m0.1s": "--span must be between 100ms and 30m",
		"think=-1s":    "--think must be between 0s and 1m",
		"retries=101":  "--retries must be between 0 and 100",
		"max-lost=0":   "--max-lost must be between 0.000000001 and 1",
		"span=100ms": "2000 buyers within 100ms are 90611 arrivals per second at the peak: one machine simulates at most " +
			"50000",
		"curve=flat": `--curve "flat": want spike, uniform or ramp`,
	} {
		wantUsage(t, want, "rehearse", "shoe", "--target", "http://127.0.0.1:1", "--no-report", "--"+flag)
	}
}

// A command that has sent nothing has not begun.
func TestSettlementWithoutAServerHasNotBegun(t *testing.T) {
	code, _, stderr := sluice(t, map[string]string{envData: t.TempDir()}, "dead", "retry", "--all")
	if code != exitUsage || !strings.HasPrefix(stderr, "sluice: no server: set --server, ") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestOrdersReplicaIsCheckedFirst(t *testing.T) {
	wantUsage(t, "--orders-replica: must begin with postgres://; SLUICE_ADMIN_TOKEN has 4 bytes: "+
		"it must hold at least 16 (openssl rand -hex 32 makes one)", "backend", "--redis", "redis://127.0.0.1:1", "--database", "sqlite:x",
		"--orders-replica", "10.0.0.4/sluice")
}

// Text that JSON or an HTTP header cannot contain is an error of the command line, and not of the server.
func TestTextThatCannotBeSent(t *testing.T) {
	wantUsage(t, `the argument "\xff" is not UTF-8 text: convert it`,
		"sale", "create", "--title", "\xff", "--stock", "5", "--price", "1EUR")
	for _, name := range []string{"a\nb", strings.Repeat("a", 65), " "} {
		wantUsage(t, fmt.Sprintf("the admin name %q (--as, SLUICE_ADMIN_NAME): want at most 64 bytes of text without "+
			"control characters", name), "sale", "list", "--as", name)
	}
	for _, key := range []string{"a\nb", "鞋", strings.Repeat("k", 256)} {
		wantUsage(t, fmt.Sprintf("--key %q: want at most 255 printable ASCII characters", key),
			"sale", "restock", "shoe", "--add", "1", "--key", key)
	}
	for _, server := range []string{"unix:/run/sluice.sock", "http://", "127.0.0.1"} {
		wantUsage(t, fmt.Sprintf("--server %q: want http://host:port", server), "sale", "list", "--server", server)
	}
	env := map[string]string{envServer: "127.0.0.1:1", envAdminToken: "hush\nhush", envData: t.TempDir()}
	const want = "sluice: SLUICE_ADMIN_TOKEN has control characters: want one line of text\n"
	if code, _, stderr := sluice(t, env, "sale", "restock", "shoe", "--add", "1"); code != exitUsage || stderr != want {
		t.Errorf("exit %d, %q, want %q", code, stderr, want)
	}
}

// A change is kept although its output, as text or as JSON, cannot be written.
func TestOutputThatCannotBeWritten(t *testing.T) {
	env := map[string]string{envServer: fakeAdminAPI(t).URL, envAdminToken: "hush", envData: t.TempDir()}
	const want = "sluice: the output is incomplete (changes that the command made are kept): the disk is full\n"
	for _, line := range []string{"webhook rotate ep_1", "webhook rotate ep_1 --json"} {
		var stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(line), func(name string) string { return env[name] }, fullDisk{}, &stderr)
		if code != exitFail || stderr.String() != want {
			t.Errorf("%s: exit %d, %q, want %q", line, code, &stderr, want)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }
