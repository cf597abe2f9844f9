package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"sluice/gateway/policy"
)

const (
	tight = `return { rules = { { name = "all", key = "ip", rate = "1r/s", burst = 0 } } }`
	loose = `return { rules = { { name = "all", key = "ip", rate = "600r/m", burst = 9, match = { method = "POST", path = "/v1/*/orders" }, mode = "shadow" } } }`
)

// combined is an access log with n requests of one address in one second.
func combined(n int) string {
	return strings.Repeat(`10.0.0.1 - - [27/Nov/2026:10:00:00 +0000] "GET /v1/sales HTTP/1.1" 200 12 "-" "-"`+"\n", n)
}

func TestTrialChecks(t *testing.T) {
	trial := NewTrial()
	good, _ := trial.Check(loose).(checked)
	want := trialRule{
		Name:       "all",
		Key:        "ip",
		Rate:       "600r/m",
		Burst:      9,
		Match:      "POST /v1/*/orders",
		Mode:       "shadow",
		OnError:    "deny",
		IPv6Prefix: 64, Scope: "edge",
	}
	if len(good.Rules) != 1 || good.Rules[0] != want || len(good.Errors) > 0 {
		t.Errorf("%+v, want %+v", good, want)
	}
	for name, source := range map[string]string{
		"no Lua":          "limit_req zone=one;",
		"empty":           "",
		"a loop":          "while true do end",
		"a function":      `local function f() return f() + 1 end return f()`,
		"a binary chunk":  "\x1bLua",
		"no UTF-8":        "\xff\xfe",
		"libraries":       `return os.getenv("SLUICE_TOKEN_SECRET")`,
		"files":           `return io.open("/etc/passwd")`,
		"more than 64 KB": strings.Repeat("-- x\n", 20_000) + tight,
		"brackets":        strings.Repeat("{", 100_000),
		"a NUL":           "return \x00",
	} {
		bad, _ := trial.Check(source).(checked)
		if len(bad.Errors) == 0 || bad.Errors[0].Message == "" || len(bad.Rules) > 0 {
			t.Errorf("%s: %+v", name, bad)
		}
	}
}

func TestTrialReplays(t *testing.T) {
	trial := NewTrial()
	got, err := trial.Replay(t.Context(), tight, loose, strings.NewReader(combined(5)))
	if err != nil {
		t.Fatal(err)
	}
	report, _ := got.(*Report)
	if report.Requests != 5 || report.Policy.Refused != 4 || report.Difference == nil || report.Difference.OnlyNew != 4 {
		t.Errorf("%+v", report)
	}
	for name, row := range map[string]struct {
		source, against, log string
	}{
		"an invalid policy":         {"return 7", "", combined(1)},
		"an invalid current policy": {tight, "return 7", combined(1)},
		"no log":                    {tight, "", "\x00\x01\x02"},
		"a long line":               {tight, "", strings.Repeat("x", 10<<20)},
	} {
		if report, err := trial.Replay(t.Context(), row.source, row.against, strings.NewReader(row.log)); err == nil {
			t.Errorf("%s: %+v", name, report)
		}
	}
	if _, err := trial.Replay(t.Context(), "return 7", "", nil); !errors.As(err, new(policy.Findings)) {
		t.Errorf("an invalid policy: %v", err)
	}
}

// A small gzip file may contain a long log. The context ends its replay.
func TestTrialEndsWithItsContext(t *testing.T) {
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	for range 50 {
		if _, err := io.WriteString(zip, combined(10_000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewTrial().Replay(ctx, tight, "", &bomb); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTrialReplaysOneLogAtATime(t *testing.T) {
	trial := NewTrial()
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := trial.Replay(t.Context(), tight, "", reader)
		ended <- err
	}()
	if _, err := io.WriteString(writer, combined(1)); err != nil { // it is read, so the replay has begun
		t.Fatal(err)
	}
	if _, err := trial.Replay(t.Context(), tight, "", strings.NewReader(combined(1))); !errors.Is(err, ErrBusy) {
		t.Errorf("a second replay: %v", err)
	}
	_ = writer.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := trial.Replay(t.Context(), tight, "", strings.NewReader(combined(1))); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
