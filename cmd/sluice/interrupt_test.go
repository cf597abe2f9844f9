package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/test/testenv"
)

// runUntil runs a command line without quotes until ctx ends, as a signal ends it.
func runUntil(ctx context.Context, env map[string]string, line string) (code int, stderr string) {
	var errOut bytes.Buffer
	code = run(ctx, strings.Fields(line), func(name string) string { return env[name] }, io.Discard, &errOut)
	return code, errOut.String()
}

// A command that a signal ends reports that, and not an error of the server or success.
func TestInterruptedCommandsReportIt(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	dir := t.TempDir()
	svg := filepath.Join(dir, "queues.svg")
	if err := os.WriteFile(svg, []byte("an earlier chart"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		envServer: "http://127.0.0.1:1", envAdminToken: "hush", envData: dir, envSecret: testSecret,
	}
	for args, want := range map[string]string{
		"sale list":                            "interrupted",
		"sale restock shoe --add 1 --key k":    "interrupted (to repeat it without adding twice: --key k)",
		"order cancel 1":                       "1: interrupted",
		"dead retry --all --json":              "stopped: repeat the command to continue: interrupted",
		"health":                               "not ready: interrupted",
		"token check --token-keys https://a x": "interrupted",
		"rehearse shoe --target http://127.0.0.1:1 --no-report":                                            "interrupted",
		"sale archive shoe --redis redis://127.0.0.1:1 --database sqlite:" + dir + "/none --output " + dir: "interrupted",
		"bench queue --redis redis://127.0.0.1:1 --svg " + svg:                                             "interrupted",
	} {
		code, stderr := runUntil(ctx, env, args)
		if code != exitFail || stderr != "sluice: "+want+"\n" {
			t.Errorf("sluice %s: exit %d, %q, want %q", args, code, stderr, want)
		}
	}
	if text, err := os.ReadFile(svg); string(text) != "an earlier chart" {
		t.Errorf("an interrupted benchmark has changed the chart: %q, %v", text, err)
	}
}

// A signal during the start of a process stops it as one during its run does: exit 0.
func TestStoppedStartsAreNoErrors(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	env := map[string]string{envSecret: testSecret, envAdminToken: testSecret}
	stores := " --redis redis://127.0.0.1:1 --database postgres://127.0.0.1:1/none"
	for _, args := range []string{
		"edge --upstream 127.0.0.1:1 --root= --prefix " + t.TempDir(), "gateway --upstream 127.0.0.1:1 --listen localhost:0",
		"backend --listen localhost:0" + stores, "worker" + stores, "watcher --redis redis://127.0.0.1:1",
	} {
		code, stderr := runUntil(ctx, env, args)
		if code != exitOK || strings.Contains(stderr, "sluice: ") {
			t.Errorf("sluice %s: exit %d, %s", args, code, stderr)
		}
	}
}

// sluice edge reload and sluice edge -t have not done their work when a signal ends them.
func TestInterruptedEdgeCommandsReportIt(t *testing.T) {
	t.Parallel()
	prefix, _ := runEdge(t, "--listen", testenv.FreeAddress(t))
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	env := map[string]string{envSecret: testSecret}
	for _, args := range []string{"edge -t --upstream 127.0.0.1:1 --root=", "edge reload --prefix " + prefix} {
		code, stderr := runUntil(ctx, env, args)
		if code != exitFail || stderr != "sluice: interrupted\n" {
			t.Errorf("sluice %s: exit %d, %s", args, code, stderr)
		}
	}
}

// A ping that a signal ends has not waited until its timeout.
func TestInterruptedPingReportsIt(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	before := http.DefaultClient.Transport
	defer func() { http.DefaultClient.Transport = before }()
	http.DefaultClient.Transport = pinged(interrupt)
	env := map[string]string{envServer: "http://127.0.0.1:1", envAdminToken: "hush", envData: t.TempDir()}
	if code, stderr := runUntil(ctx, env, "webhook ping ep_1"); code != exitFail || stderr != "sluice: interrupted\n" {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// pinged answers a ping and the state of its delivery. It calls a function when the state has been read.
type pinged func()

func (read pinged) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	answer.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost {
		fmt.Fprint(answer, `{"delivery":"d"}`)
		return answer.Result(), nil
	}
	fmt.Fprint(answer, `{"state":"waiting"}`)
	response := answer.Result()
	response.Body = closing{response.Body, read}
	return response, nil
}

// closing calls a function when it is closed.
type closing struct {
	io.Reader
	closed func()
}

func (c closing) Close() error { c.closed(); return nil }

// After an error, the old file is unchanged, or there is no file as before. No temporary file remains.
func TestCreateFileReplacesTheWholeFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "report.html")
	failed := errors.New("the disk is full")
	half := func(w io.Writer) error {
		_, err := io.WriteString(w, "the first half")
		return errors.Join(err, failed)
	}
	content := func() string {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if files, err := filepath.Glob(path + "?*"); err != nil || len(files) > 0 {
			t.Errorf("%v, and the files %q", err, files)
		}
		return string(text)
	}
	for _, old := range []string{"", "the old report"} {
		if old != "" {
			if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := checkFile(path); err != nil || content() != old {
			t.Errorf("%v, and the checked file is %q, want %q", err, content(), old)
		}
		if err := createFile(path, 0o600, half); !errors.Is(err, failed) || content() != old {
			t.Errorf("%v, and the file is %q, want %q", err, content(), old)
		}
	}
	whole := func(w io.Writer) error { _, err := io.WriteString(w, "the new report"); return err }
	err := createFile(path, 0o644, whole)
	info, missing := os.Stat(path)
	if err != nil || missing != nil || info.Mode() != 0o600 || content() != "the new report" {
		t.Errorf("%v, %v, and the file is %q, want the new report and the old permissions", err, missing, content())
	}
	for _, c := range []struct {
		want  string
		write func(file *os.File) error
	}{
		{"write " + path + ": file already closed", func(file *os.File) error {
			return errors.Join(file.Close(), func() error { _, err := file.Write([]byte("x")); return err }())
		}},
		{"sync " + path + ": file already closed\nclose " + path + ": file already closed", (*os.File).Close},
	} {
		err = createFile(path, 0o600, func(w io.Writer) error { return c.write(w.(*os.File)) })
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	link, target := filepath.Join(t.TempDir(), "link"), filepath.Join(dir, "linked")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{checkFile(link), createFile(link, 0o600, whole)} {
		if _, missing := os.Stat(target); !errors.Is(err, os.ErrNotExist) || !errors.Is(missing, os.ErrNotExist) {
			t.Errorf("a link to a file that does not exist: %v, and the file: %v", err, missing)
		}
	}
	pipe := filepath.Join(t.TempDir(), "pipe") // stands for a device, such as /dev/stdout
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // without a reader, createFile would wait for one
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	err = createFile(pipe, 0o600, func(io.Writer) error { return failed })
	if _, missing := os.Stat(pipe); !errors.Is(err, failed) || missing != nil {
		t.Errorf("%v, and the pipe: %v", err, missing)
	}
}

// Of two concurrent writers of a file, the last one wins.
func TestCreateFileTwiceConcurrently(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.html")
	err := createFile(path, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, "the longer report")
		return errors.Join(err, createFile(path, 0o600, func(w io.Writer) error {
			_, err := io.WriteString(w, "a report")
			return err
		}))
	})
	if text, missing := os.ReadFile(path); err != nil || string(text) != "the longer report" {
		t.Errorf("%v, %v, and the file is %q", err, missing, text)
	}
}

// The directory of a report is checked before the rehearsal. The report would be lost otherwise.
func TestRehearseChecksTheDirectoryFirst(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs a directory in which also root cannot create a file")
	}
	const dir = "/proc"
	env := map[string]string{envServer: "http://127.0.0.1:1", envAdminToken: "hush", envData: t.TempDir(),
		envSecret: strings.Repeat("s", 32)}
	code, _, stderr := sluice(t, env, "rehearse", "shoe", "--target", "http://127.0.0.1:1", "--out", dir)
	const want = "sluice: --out: no file can be created in \"/proc\": no such file or directory: name another directory\n"
	if code != exitUsage || stderr != want {
		t.Errorf("exit %d, %q, want %q", code, stderr, want)
	}
}

// A named pipe may have a writer that never writes.
func TestFilesOfFlagsAreInterruptible(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a writer cannot wait for the reader of a pipe everywhere")
	}
	for _, line := range []string{
		"sale describe shoe --description PIPE", "token --user ann --token-keys PIPE --kid a",
		"gateway --upstream 127.0.0.1:1 --token-keys PIPE", "sale list",
	} {
		pipe := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		env := map[string]string{envServer: "127.0.0.1:1", envData: t.TempDir()}
		if line == "sale list" {
			env[envAdminToken+"_FILE"] = pipe
		}
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan string, 1)
		go func() {
			code, stderr := runUntil(ctx, env, strings.ReplaceAll(line, "PIPE", pipe))
			ended <- fmt.Sprint(code, " ", stderr)
		}()
		var writer *os.File
		testenv.Eventually(t, time.Minute, "sluice opens the pipe", func() (opened bool) {
			var err error
			writer, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			return err == nil
		})
		interrupt()
		select {
		case got := <-ended:
			want := "1 sluice: interrupted\n"
			if strings.HasPrefix(line, "gateway") {
				want = "0 " // it runs until a signal ends it
			}
			if got != want {
				t.Errorf("%s: %s, want %s", line, got, want)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: does not end", line)
		}
		writer.Close()
	}
}
