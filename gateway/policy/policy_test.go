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

func TestReadUnderstandsEveryField(t *testing.T) {
	got, err := policy.Read("testdata/full.lua")
	if err != nil {
		t.Fatal(err)
	}
	want := &policy.Policy{
		TrustedProxies: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("198.51.100.0/24"),
		},
		Rules: []policy.Rule{
			{Name: "ip", Key: policy.ByIP, Rate: policy.Rate{Requests: 20, Per: time.Second}, Burst: 40, Mode: policy.Enforce, OnError: policy.Deny},
			{Name: "token", Key: policy.ByToken, Rate: policy.Rate{Requests: 90, Per: time.Minute}, Burst: 4, Delay: true, Mode: policy.Shadow, OnError: policy.Allow,
				Match: policy.Match{Method: "POST", Path: "/v1/sales/*/orders"}},
			{Name: "slow", Key: policy.ByIP, Rate: policy.Rate{Requests: 0.5, Per: time.Hour}, Mode: policy.Enforce, OnError: policy.Deny},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("read\n%+v, want\n%+v", got, want)
	}
	if r := got.Rules[1].Rate.PerSecond(); r != 1.5 {
		t.Errorf("90r/m is %v requests a second, want 1.5", r)
	}
}

// The shipped policy is the one file most people edit: if it does not read, nothing works.
func TestReadAcceptsTheShippedPolicy(t *testing.T) {
	p, err := policy.Read("../../lua/policy.lua")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Rules) == 0 {
		t.Fatal("the shipped policy limits nothing")
	}
}

// Every file of testdata/bad is named for what is wrong with it and ends in the mistakes it must give, one "-- want LINE: WHAT" each.
func TestReadNamesTheLineAndTheMistake(t *testing.T) {
	files, _ := filepath.Glob("testdata/bad/*.lua")
	if len(files) < 40 {
		t.Fatalf("only %d bad policies found", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".lua"), func(t *testing.T) {
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
			err = policy.Check(file)
			var mistakes policy.Mistakes
			if !errors.As(err, &mistakes) {
				t.Fatalf("Check says %v, want mistakes", err)
			}
			if got := err.Error(); got != strings.Join(want, "\n") {
				t.Errorf("Check says\n%s\nwant\n%s", got, strings.Join(want, "\n"))
			}
		})
	}
}

func TestReadOfAMissingFileIsOneLine(t *testing.T) {
	err := policy.Check("testdata/nowhere.lua")
	if want := "testdata/nowhere.lua: cannot be read: no such file or directory"; err == nil || err.Error() != want {
		t.Fatalf("says %v, want %s", err, want)
	}
	err = policy.Check("testdata")
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Fatalf("a folder says %v, want one line", err)
	}
}

func TestParseRefusesAPolicyThatIsTooLarge(t *testing.T) {
	source := []byte("return { rules = {} }\n" + strings.Repeat("-", policy.MaxSize))
	if _, err := policy.Parse("p.lua", source); err == nil || err.Error() != "p.lua: larger than 65536 bytes" {
		t.Fatalf("says %v", err)
	}
}

func TestParseRefusesBracketsWithoutEnd(t *testing.T) {
	source := []byte("return\n" + strings.Repeat("{", 60_000))
	if _, err := policy.Parse("p.lua", source); err == nil || err.Error() != "p.lua:2: more than 100 brackets within brackets" {
		t.Fatalf("says %v", err)
	}
}

func TestParseAllowsAPolicyToComputeItsTable(t *testing.T) {
	p, err := policy.Parse("p.lua", []byte(`
		local base = "/v1/sales"
		local rules = {}
		for i = 1, 3 do rules[i] = { name = "r" .. i, key = "ip", rate = i .. "r/s", match = { path = base .. "/*/orders" } } end
		return { rules = rules }`))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Rules) != 3 || p.Rules[2].Rate.Requests != 3 || p.Rules[2].Match.Path != "/v1/sales/*/orders" {
		t.Fatalf("read %+v", p.Rules)
	}
}

func TestReadsDoNotShareState(t *testing.T) {
	if _, err := policy.Parse("a.lua", []byte(`leak = { rules = {} } return leak`)); err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Parse("b.lua", []byte(`return leak`)); err == nil {
		t.Fatal("a policy sees the globals of one read before it")
	}
}
