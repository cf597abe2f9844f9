package policy_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"sluice/gateway/policy"
)

func TestReadParsesEveryField(t *testing.T) {
	got, err := policy.Read("testdata/full.lua")
	if err != nil {
		t.Fatal(err)
	}
	want := &policy.Policy{
		TrustedProxies: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/32"),
			netip.MustParsePrefix("198.51.100.0/24"),
		},
		NoRefusalCache: true,
		Rules: []policy.Rule{
			{
				Name: "ip", Key: policy.ByIP, Rate: policy.Rate{Requests: 20, Per: time.Second}, Burst: 40,
				Mode: policy.Enforce, OnError: policy.Deny, IPv6Prefix: 64,
			},
			{
				Name:    "token",
				Key:     policy.ByToken,
				Rate:    policy.Rate{Requests: 90, Per: time.Minute},
				Burst:   4,
				Delay:   true,
				Mode:    policy.Shadow,
				OnError: policy.Allow,
				Match:   policy.Match{Method: "POST", Path: "/v1/sales/*/orders"},
			},
			{
				Name: "slow", Key: policy.ByIP, Rate: policy.Rate{Requests: 0.5, Per: time.Hour}, Mode: policy.Enforce,
				OnError: policy.Deny, IPv6Prefix: 48,
			},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("read\n%+v, want\n%+v", got, want)
	}
	if r := got.Rules[1].Rate.PerSecond(); r != 1.5 {
		t.Errorf("90r/m is %v requests a second, want 1.5", r)
	}
}

func TestDefaultPolicyIsValid(t *testing.T) {
	p, err := policy.Read("../../lua/policy.lua")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Rules) == 0 {
		t.Fatal("the default policy has no rules")
	}
}

// The files of testdata/good are unusual but valid.
func TestReadAcceptsUnusualPolicies(t *testing.T) {
	files, _ := filepath.Glob("testdata/good/*.lua")
	if len(files) < 12 {
		t.Fatalf("only %d good policies found", len(files))
	}
	for _, file := range files {
		if _, err := policy.Read(file); err != nil {
			t.Errorf("%s is rejected: %v", file, err)
		}
	}
}

// gopher-lua allocates a list up to the highest index that is written.
func TestParseRejectsHugeLists(t *testing.T) {
	for _, source := range []string{
		"local t = {}\nt[67108863] = 1\nreturn { rules = {} }",
		"local t = {}\nfor i = 1, 6000 do local u = {} u[4095] = 1 t[i] = u end\nreturn { rules = {} }",
		"local t = {}\nlocal function f() local k = 2^25 t[k], t.x = 1, 2 end f()\nreturn { rules = {} }",
		"local t = {}\nif true then while true do repeat t[9e6] = 1 until true end end\nreturn { rules = {} }",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := policy.Parse("p.lua", []byte(source))
		runtime.ReadMemStats(&after)
		if err == nil || !strings.HasPrefix(err.Error(), "p.lua:2: the index ") {
			t.Errorf("%s\nreturned %v", source, err)
		}
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 128 {
			t.Errorf("%s\nallocated %d MB", source, used)
		}
	}
}

// wanted returns the findings that a file of testdata expects, which are its comments "-- want LINE: MESSAGE".
func wanted(t *testing.T, file string) string {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(source)) {
		if text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-- want "); ok {
			want = append(want, file+":"+text)
		}
	}
	return strings.Join(want, "\n")
}

func TestReadReportsLineAndMessage(t *testing.T) {
	files, _ := filepath.Glob("testdata/bad/*.lua")
	if len(files) < 40 {
		t.Fatalf("only %d bad policies found", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".lua"), func(t *testing.T) {
			_, err := policy.Read(file)
			var findings policy.Findings
			if !errors.As(err, &findings) {
				t.Fatalf("Read returned %v, want Findings", err)
			}
			if got, want := err.Error(), wanted(t, file); got != want {
				t.Errorf("Read returned\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestReadOfAMissingFileReturnsOneLine(t *testing.T) {
	_, err := policy.Read("testdata/nowhere.lua")
	if want := "testdata/nowhere.lua: cannot be read: no such file or directory"; err == nil || err.Error() != want {
		t.Fatalf("returned %v, want %s", err, want)
	}
	_, err = policy.Read("testdata")
	if want := "testdata: cannot be read: it is a directory"; err == nil || err.Error() != want {
		t.Fatalf("returned %v, want %s", err, want)
	}
}

func TestParseRejectsALargePolicy(t *testing.T) {
	source := []byte("return { rules = {} }\n" + strings.Repeat("-", policy.MaxSize))
	if _, err := policy.Parse("p.lua", source); err == nil || err.Error() != "p.lua: larger than 65536 bytes: a "+
		"policy is a few rules" {
		t.Fatalf("returned %v", err)
	}
}

func TestParseRejectsDeepNesting(t *testing.T) {
	source := []byte("return\n" + strings.Repeat("{", 60_000))
	if _, err := policy.Parse("p.lua", source); err == nil || err.Error() != "p.lua:2: more than 100 brackets within "+
		"brackets: is one not closed?" {
		t.Fatalf("returned %v", err)
	}
}

func TestPolicyMayComputeItsTable(t *testing.T) {
	p, err := policy.Parse("p.lua", []byte(`
		local base = "/v1/sales"
		local rules = {}
		for i = 1, 3 do
			rules[i] = { name = "r" .. i, key = "ip", rate = i .. "r/s", match = { path = base .. "/*/orders" } }
		end
		return { rules = rules }`))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Rules) != 3 || p.Rules[2].Rate.Requests != 3 || p.Rules[2].Match.Path != "/v1/sales/*/orders" {
		t.Fatalf("read %+v", p.Rules)
	}
}

// gopher-lua reads such text as another number than LuaJIT does, or as a number where LuaJIT reports an error.
func TestParseRejectsAmbiguousTextInCalculations(t *testing.T) {
	for _, text := range []string{"010", "1_0", "0b11", "0o17", " 7", "inf", "+1"} {
		source := "local n = '" + text + "'\nreturn { rules = { { name = 'a', key = 'ip', rate = '1r/s', burst = n * 2 } } }"
		_, err := policy.Parse("p.lua", []byte(source))
		want := `p.lua:2: "` + text + `" is not a number that every edge reads: write it as 40 or 1.5`
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestPoliciesDoNotShareGlobals(t *testing.T) {
	if _, err := policy.Parse("a.lua", []byte(`leak = { rules = {} } return leak`)); err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Parse("b.lua", []byte(`return leak`)); err == nil {
		t.Fatal("a policy can read the globals of another")
	}
}
