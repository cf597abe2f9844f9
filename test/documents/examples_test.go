package documents

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeCurl fails for a URL with a space as curl does. Any other first request gets no response; the second one buys the
// order 7.
const fakeCurl = `#!/bin/sh
cat >/dev/null
echo "$@" >>calls
n=$(wc -l <calls)
case "$*" in *"a b"*) exit 3 ;; esac
[ "$n" -eq 1 ] && exit 52
while [ "$1" != --output ]; do shift; done
if [ "$n" -eq 2 ]; then
	echo '{"order_id":"7","status":"queued"}' >"$2"
	printf 202
else
	echo '{"order_id":"7","status":"created"}' >"$2"
	printf 200
fi
`

// The example for the shell repeats a request after a lost response, and no request that always fails.
func TestShellExampleRepeatsOnlyWhatCanSucceed(t *testing.T) {
	script, err := filepath.Abs(filepath.Join(root, "docs/examples/buy.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id, out      string
		calls, waits int
	}{
		{"a b", "", 1, 0},
		{"shoe", "7 created\n", 3, 1},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"curl": fakeCurl, "sleep": "#!/bin/sh\necho >>waits\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("sh", script, c.id)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "SLUICE_URL=http://127.0.0.1:1", "SLUICE_TOKEN=x")
		out, err := cmd.Output()
		calls, waits := contentOf(t, dir, "calls"), contentOf(t, dir, "waits")
		if string(out) != c.out || (err == nil) != (c.out != "") || strings.Count(calls, "\n") != c.calls ||
			strings.Count(waits, "\n") != c.waits || strings.Contains(calls, "--retry-all-errors") {
			t.Errorf("%s: printed %q, %v; %d waits; calls of curl:\n%s", c.id, out, err, strings.Count(waits, "\n"), calls)
		}
	}
}

// A negative length would read all that the client sends, and any other text would raise an error.
func TestPythonExampleRejectsInvalidLengths(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	const program = `import webhook
for size in ("-1", "x", "1048577"):
    handler = object.__new__(webhook.Handler)
    handler.headers, handler.respond = {"Content-Length": size}, print
    handler.do_POST()`
	cmd := exec.Command("python3", "-B", "-c", program)
	cmd.Dir = filepath.Join(root, "docs/examples")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "413\n413\n413\n" {
		t.Errorf("%v, %s", err, out)
	}
}

// contentOf returns the content of a file, "" if it does not exist.
func contentOf(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}
