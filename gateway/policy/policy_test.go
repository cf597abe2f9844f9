package policy_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
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
	if len(files) < 10 {
		t.Fatalf("only %d good policies found", len(files))
	}
	for _, file := range files {
		if _, err := policy.Read(file); err != nil {
			t.Errorf("%s is rejected: %v", file, err)
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
	if len(files) < 90 {
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
	deep := func(n int) error {
		_, err := policy.Parse("p.lua", []byte("return\n"+strings.Repeat("{", n)+strings.Repeat("}", n)))
		return err
	}
	if err := deep(40); err == nil || !strings.Contains(err.Error(), "named fields only") {
		t.Errorf("40 brackets: %v", err)
	}
	want := "p.lua:2: more than 40 brackets within brackets: is one not closed?"
	for _, n := range []int{41, 30_000} {
		if err := deep(n); err == nil || err.Error() != want {
			t.Errorf("%d brackets: %v", n, err)
		}
	}
}
