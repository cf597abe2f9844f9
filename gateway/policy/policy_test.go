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

func TestReadUnderstandsEveryField(t *testing.T) {
	got, err := policy.Read("testdata/full.lua")
	if err != nil {
		t.Fatal(err)
	}
	want := &policy.Policy{
		TrustedProxies: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("198.51.100.0/24"),
		},
		NoRefusalCache: true,
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

// Every file of testdata/good is named for what is odd about it, and right.
func TestReadAcceptsWhatIsOddAndRight(t *testing.T) {
	files, _ := filepath.Glob("testdata/good/*.lua")
	if len(files) < 12 {
		t.Fatalf("only %d good policies found", len(files))
	}
	for _, file := range files {
		if _, err := policy.Read(file); err != nil {
			t.Errorf("%s is refused: %v", file, err)
		}
	}
}

// One step must not cost a gigabyte: gopher-lua makes a list as long as the highest index written to it.
func TestParseAllowsNoHugeLists(t *testing.T) {
	for _, source := range []string{
		"local t = {}\nt[67108863] = 1\nreturn { rules = {} }",
		"return {\n[60000000] = 1, rules = {} }",
		"local t = {}\nfor i = 1, 6000 do local u = {} u[4095] = 1 t[i] = u end\nreturn { rules = {} }",
		"local t = {}\nlocal function f() local k = 2^25 t[k], t.x = 1, 2 end f()\nreturn { rules = {} }",
		"local t = {}\nif true then while true do repeat t[9e6] = 1 until true end end\nreturn { rules = {} }",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := policy.Parse("p.lua", []byte(source))
		runtime.ReadMemStats(&after)
		if err == nil || !strings.HasPrefix(err.Error(), "p.lua:2: the index ") {
			t.Errorf("%s\nsays %v", source, err)
		}
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 128 {
			t.Errorf("%s\ntook %d MB", source, used)
		}
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
	if want := "testdata: cannot be read: it is a folder"; err == nil || err.Error() != want {
		t.Fatalf("a folder says %v, want %s", err, want)
	}
}

func TestParseRefusesAPolicyThatIsTooLarge(t *testing.T) {
	source := []byte("return { rules = {} }\n" + strings.Repeat("-", policy.MaxSize))
	if _, err := policy.Parse("p.lua", source); err == nil || err.Error() != "p.lua: larger than 65536 bytes: a policy is a few rules" {
		t.Fatalf("says %v", err)
	}
}

func TestParseRefusesBracketsWithoutEnd(t *testing.T) {
	source := []byte("return\n" + strings.Repeat("{", 60_000))
	if _, err := policy.Parse("p.lua", source); err == nil || err.Error() != "p.lua:2: more than 100 brackets within brackets: is one not closed?" {
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
