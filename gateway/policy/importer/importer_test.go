package importer

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/gateway/policy"
)

var update = flag.Bool("update", false, "write the golden files")

// Each file of testdata is converted to the policy beside it, which both edges can read.
func TestImportWritesAPolicyThatIsValid(t *testing.T) {
	for _, name := range []string{"nginx.conf", "ingress.yaml", "apisix.yaml", "apisix.json"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name)
			result, err := Import(file)
			if err != nil {
				t.Fatal(err)
			}
			text := result.Policy(file)
			golden := file + ".lua"
			if *update {
				if err := os.WriteFile(golden, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			byLine := func(a, b policy.Finding) int { return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line) }
			if !slices.IsSortedFunc(result.Notes, byLine) {
				t.Errorf("the notes are not sorted: %v", result.Notes)
			}
			if want, err := os.ReadFile(golden); err != nil || string(text) != string(want) {
				t.Errorf("%v; the policy differs from %s (go test -update):\n%s", err, golden, text)
			}
			read, err := policy.Parse(golden, text)
			if err != nil {
				t.Fatal(err)
			}
			var rules []policy.Rule
			for _, r := range result.Rules {
				rules = append(rules, r.Rule)
			}
			if !slices.Equal(read.Rules, rules) || !slices.Equal(read.TrustedProxies, result.TrustedProxies) {
				t.Errorf("the text has\n%+v, the result\n%+v", read, result)
			}
		})
	}
}

// importText imports a file with this name and text. It returns the policy with the name as the path of the file.
func importText(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	result, err := Import(file)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return strings.ReplaceAll(string(result.Policy(file)), file, name)
}

// A difference between a limit and its rule is noted where there is one, and not elsewhere.
func TestImportNotesDifferences(t *testing.T) {
	nginx := func(text string) string {
		return "http { limit_req_zone $binary_remote_addr zone=_a:1m rate=1r/s;\n" + text + "}"
	}
	ingress := func(rps int, path string) string {
		return fmt.Sprintf("kind: Ingress\nmetadata: {name: a, annotations: {nginx.ingress.kubernetes.io/limit-rps: '%d'}}\n"+
			"spec: {rules: [{host: b, http: {paths: [%s]}}]}", rps, path)
	}
	limit := "plugins: {limit-req: {rate: 1, burst: 1, key: remote_addr, rejected_code: 429}}"
	const (
		hosts = "a rule applies to every host"
		below = "the rule also counts requests of other locations that it matches"
		scope = "applies to some routes only; the rule applies to every request"
	)
	for _, row := range []struct{ name, text, has, hasNot string }{
		{"a.conf", nginx("upstream u { server b; server c; } server { limit_req zone=_a; }"), `name = "a"`, hosts},
		{"a.conf", nginx("server { limit_req zone=_a; }\nserver {}"), "a.conf:2: limit_req zone=_a: " + hosts, "\x00"},
		{"a.conf", nginx("server { location / { limit_req zone=_a; } }"), "burst = 0 }", below},
		{"a.conf", nginx("server { location / { limit_req zone=_a; } location /b {} }"), "a.conf:2: location /: " + below,
			"\x00"},
		{"a.conf", nginx("server { location /b { limit_req zone=_a; } location / {} }"), `path = "/b"`, below},
		{"a.conf", nginx("server { location /b { limit_req zone=_a; } location ~ c {} }"), "location /b: " + below, "\x00"},
		{"a.conf", nginx("server { location = /b { limit_req zone=_a; } location ~ c {} }"), `path = "/b"`, below},
		{"a.conf", nginx("server { location = /b/* { limit_req zone=_a; } }"),
			"not converted: limit_req zone=_a in location = /b/*", "{ name"},
		{"a.conf", nginx("server { location = /é { limit_req zone=_a; } }"),
			`in location = /é: path "/é" is matched against decoded paths`, "{ name"},
		{"a.conf", nginx("server { location = '/\"' { limit_req zone=_a; } }"),
			`path "/?" is matched against decoded paths`, "{ name"},
		{"a.conf", nginx("server { limit_req zone=_a; limit_req zone=_a burst=2; }"),
			"a.conf:2: no limit_req_status: nginx answers 503, the edge 429\n", "burst=2: no limit_req_status"},
		{"a.conf", nginx("limit_req_status 429; server { limit_req zone=_a; }"), `name = "a"`, "429"},
		{"a.conf", nginx("limit_req zone=_a; server { if ($bad_bot) { return 403; } }"),
			"a.conf:2: not converted: if $bad_bot { return 403 }: a policy blocks no clients", "\x00"},
		{"a.conf", nginx("limit_req zone=_a; server { if ($host = b) { return 301 https://c; } if ($x) { return; } }"),
			`name = "a"`, "not converted"},
		{"a.conf", nginx("limit_req zone=_a; server { location /b { deny all; } }"), "deny all: a policy blocks", "\x00"},
		{"a.conf", nginx("limit_req zone=_a; server { location /b { internal; deny all; } }"), `name = "a"`, "deny"},
		{"a.yaml", ingress(1, "{path: /b}"), "limit-req-status-code of the ConfigMap is 503, by default", "\x00"},
		{"a.yaml", ingress(1, "{path: /b(/|$)(.*)}"),
			"not converted: Ingress a, limit of a-rps: /b(/|$)(.*) is a regular expression", "{ name"},
		{"a.yaml", ingress(1, "{path: /v1.0/b, pathType: Exact}"), `match = { path = "/v1.0/b" }`, "not converted"},
		{"a.yaml", ingress(1, "{path: /b}, {}"), `name = "a-rps", key = "ip", rate = "1r/s", burst = 5 }`, "a-rps-2"},
		{"a.yaml", ingress(300_000, "{path: /}"), "not converted: Ingress a, limit of a-rps: burst must be",
			"{ name"},
		{"a.yaml", "routes:\n- {name: 登录, uri: /a, " + limit + "}", `name = "limit", key = "ip"`, "not converted"},
		{"a.yaml", "p: &p {limit-req: {}}\nroutes:\n- {uri: /a, " + limit + "}\n- {uri: /b,\n plugins: *p}",
			"a.yaml:5: not converted: the alias *p", "\x00"},
		{"a.json", `{"key": "/apisix/services/1", "value": {` + limit + "}}", scope, "\x00"},
		{"a.json", `{"key": "/apisix/global_rules/1", "value": {` + limit + "}}", `key = "ip"`, scope},
		{"a.yaml", "global_rules:\n- {id: 1, " + limit + "}", `key = "ip"`, scope},
		{"a.yaml", "{uri: /a, remote_addr: 10.0.0.1, " + limit + "}", "the route has further conditions", "\x00"},
		{"a.yaml", "{uri: /a, plugins: {limit-req: {rate: 1, burst: 2, nodelay: True}}}", "burst = 2", "delay"},
		{"a.json", `{"uri": "\/a", ` + limit + "}", `path = "/a"`, "\x00"},
		{"a.json", `{"name": "\\/", "uri": "\/a", ` + limit + "}", `limit-req of \/` + "\n", "\x00"},
		{"a.json", `{"uri": "/a", "plugins": {"limit-req": {"rate": 1, "disable": true}}}`,
			"not converted: limit-req of limit-req is disabled", "{ name"},
		{"a.yaml", "kind: Ingress\nmetadata: {annotations: {nginx.ingress.kubernetes.io/limit-rps: '1',\n" +
			"nginx.ingress.kubernetes.io/limit-allowlist: 10.0.0.0/8}}",
			"limit-allowlist 10.0.0.0/8: a policy has no exceptions", "not converted"},
		{"a.yaml", "kind: Ingress\nmetadata: {annotations: {nginx.ingress.kubernetes.io/server-snippet: limit_req zone=a;}}",
			"a.yaml:2: not converted: server-snippet has limit_req", "\x00"},
		{"a.yaml", "kind: ApisixRoute\nspec: {http: [{match: {paths: [/a]},\n" +
			"plugins: [{name: limit-req, enable: true, config: {rate: 1}}]}]}",
			"a.yaml:3: not converted: limit-req of a list of plugins", "\x00"},
	} {
		got := importText(t, row.name, row.text)
		if !strings.Contains(got, row.has) || strings.Contains(got, row.hasNot) {
			t.Errorf("%s\nbecame\n%s\nwant %q and not %q", row.text, got, row.has, row.hasNot)
		}
	}
}

// The empty key counts nothing, so a map selects requests.
func TestImportReadsMapsOfKeys(t *testing.T) {
	const (
		byAddress = `{ name = "a", key = "ip", rate = "5r/s", burst = 0 }`
		exempts   = "a policy has no exceptions, so clients that it exempts are limited too"
		selects   = "not converted: the key $key: the map on line 1 selects the requests that count"
	)
	post := `{ name = "a", key = "ip", rate = "5r/s", burst = 0, match = { method = "POST" } }`
	for _, row := range []struct{ maps, has, hasNot string }{
		{`map $request_method $key { default ""; POST $binary_remote_addr; }`, post, exempts},
		{`map $request_method $key { POST $binary_remote_addr; }`, post, "not converted"},
		{`map $request_method $key { default ""; POST $binary_remote_addr; GET ""; }`, post, "other methods"},
		{`map $request_method $key { default $http_x_user; POST $binary_remote_addr; }`,
			"$key is set by the map on line 1, also for other methods than POST: the rule does not count those", "\x00"},
		{`map $request_method $key { default ""; POST $binary_remote_addr; GET $uri; }`, "does not count those", "\x00"},
		{`map $request_method $key { PUT $remote_addr; PATCH $remote_addr; GET ''; }`, `match = { method = "PATCH" }`,
			byAddress},
		{`map $request_method $key { PUT $remote_addr; PATCH $remote_addr; }`, "nginx counts all places of a zone together",
			"\x00"},
		{`map $request_method $key { ~^P $binary_remote_addr; }`,
			`not converted: limit_req zone=a: method "~^P" is not an HTTP method`, "{ name"},
		{`map $request_method $key { default $binary_remote_addr; GET ""; }`, byAddress, "\x00"},
		{`map $http_user_agent $key { default ""; ~*(google|bing)bot $binary_remote_addr; }`, selects, "{ name"},
		{`map $http_user_agent $key { default $binary_remote_addr; ~*googlebot ""; }`, exempts, "not converted"},
		{`map $limit $key { 0 ""; 1 $binary_remote_addr; } geo $limit { default 1; 10.0.0.0/8 0; }`, exempts,
			"not converted"},
		{`map $limit $key { 0 ""; 1 $binary_remote_addr; } geo $limit { default 0; 10.0.0.0/8 1; }`, selects, "{ name"},
		{`map $limit $key { 1 $binary_remote_addr; } geo $http_x_real_ip $limit { default 1; 10.0.0.0/8 0; }`, exempts,
			"not converted"},
		{`map $a $key { default $b; } map $c $b { default $binary_remote_addr; }`, byAddress, "not converted"},
		{`map $a $key { default $key; }`, "not converted: the key $key;", "{ name"},
		{`map $http_authorization $key { default ""; "~^Bearer (.+)" $1; }`, "not converted: the key $key;", "{ name"},
		{`map $http_x_user $key { default $http_x_user; "" $binary_remote_addr; }`,
			"$key is set by the map on line 1: the rule counts all clients by their address", exempts},
	} {
		got := importText(t, "a.conf", row.maps+"\nlimit_req_zone $key zone=a:1m rate=5r/s; limit_req zone=a;")
		if !strings.Contains(got, row.has) || strings.Contains(got, row.hasNot) {
			t.Errorf("%s\nbecame\n%s\nwant %q and not %q", row.maps, got, row.has, row.hasNot)
		}
	}
}

// nginx reads X-Real-IP from its proxies unless real_ip_header names another header, which the edge does not read.
func TestImportNotesTheDefaultRealIPHeader(t *testing.T) {
	const note = "no real_ip_header: nginx reads X-Real-IP"
	for header, want := range map[string]int{"": 1, "real_ip_header X-Forwarded-For;": 0} {
		got := importText(t, "a.conf", "http { limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s; limit_req zone=a;\n"+
			"set_real_ip_from 10.0.0.1;\nset_real_ip_from 10.0.0.2;\n"+header+"}")
		if n := strings.Count(got, "a.conf:2: "+note); n != want {
			t.Errorf("with %q the policy has %d notes, want %d:\n%s", header, n, want, got)
		}
	}
}

// Notes repeat text of the file, which may be long. They take what the rules and proxies of the policy leave.
func TestImportWritesNoPolicyThatIsTooLargeForItsNotes(t *testing.T) {
	const limit = "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s; limit_req zone=a;\n"
	var proxies strings.Builder
	for i := range policy.MaxProxies {
		fmt.Fprintf(&proxies, "set_real_ip_from 2001:db8:%x:1111:2222:3333:4444:5555;\n", i)
	}
	long := strings.Repeat("é", 1000)
	for name, text := range map[string]string{
		"long notes":  limit + strings.Repeat("deny "+long+";\n", policy.MaxRules),
		"a long rule": limit + "location = /a/" + long + " { limit_req zone=a; }",
		"many proxies": limit + proxies.String() +
			strings.Repeat("deny "+long+";\nlimit_conn "+long+" 1;\n", policy.MaxRules),
	} {
		got := importText(t, "a.conf", text)
		if p, err := policy.Parse("a.lua", []byte(got)); err != nil || len(p.Rules) != 1 {
			t.Errorf("%s: %v in %d bytes:\n%.500s", name, err, len(got), got)
		}
		if !strings.Contains(got, "a.conf:2: not converted: ") && name != "many proxies" {
			t.Errorf("%s: the policy lacks the first note:\n%.500s", name, got)
		}
	}
}

// A configuration that was copied from its machine lacks files such as mime.types.
func TestImportNotesIncludedFilesThatDoNotExist(t *testing.T) {
	got := importText(t, "a.conf", "include /none/mime.types; limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;\n"+
		"server { include none/*.conf; limit_req zone=a; }")
	if !strings.Contains(got, "--   a.conf: not converted: /none/mime.types does not exist\n") ||
		!strings.Contains(got, `{ name = "a"`) {
		t.Error(got)
	}
}

// Lua has comments and long brackets, in which braces and quotes have no meaning.
func TestImportReadsTheDirectivesAfterLua(t *testing.T) {
	for _, block := range []string{
		"content_by_lua_block {\n}",
		"content_by_lua_block { -- don't\n}",
		"content_by_lua_block { --[==[ }\n']]]==] }",
		"content_by_lua_block {f([[ } \n' ]]) if t[1]-t[2]==0 then t = {} end }",
		`content_by_lua_block { f("\"}", '\'}', '"') -- }` + "\n}",
		"content_by_lua_block # '\n{ }",
		"set_by_lua_block $x { --'\n}",
		"content_by_lua_block {" + strings.Repeat(" f() ", 2000) + "\n}",
		"server_name\ncontent_by_lua_block;",
		"log_format x '\n content_by_lua_block {';",
	} {
		file := filepath.Join(t.TempDir(), "nginx.conf")
		text := "http { limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;\n" + block + " limit_req zone=a;}"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		result, err := Import(file)
		if err != nil || len(result.Rules) != 1 || result.Rules[0].Source != file+":3: limit_req zone=a" {
			t.Errorf("%.60q: %+v, %v", block, result, err)
		}
	}
}

func TestImportReportsWhatItCannotRead(t *testing.T) {
	dir := t.TempDir()
	var bomb strings.Builder // a billion items
	bomb.WriteString("a0: &a0 [x]\n")
	for i := range 9 {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 10))
	}
	for name, row := range map[string]struct{ text, err string }{
		"none.conf":  {"events {}", "no rate limit found"},
		"none.yaml":  {"kind: Service", "no rate limit found"},
		"empty.conf": {"", "no rate limit found"},
		"bad.conf":   {"http { limit_req_zone", "bad.conf"},
		"bad.yaml":   {"a: [", "bad.yaml"},
		"bad.json":   {`{"a":`, "bad.json"},
		"loop.conf":  {"include " + dir + "/loop.conf;", "include cycle"},
		"zero.conf":  {"include /dev/zero;", "/dev/zero: not a regular file"},
		"bomb.yaml":  {bomb.String(), "no rate limit found"},
		"deep.yaml":  {strings.Repeat("[", 1<<20), "exceeded max depth"},
		"deep.conf":  {strings.Repeat("a { # }\n", 101) + strings.Repeat("}", 101), "deep.conf:101: more than 100 nested blocks"},
		"long.conf":  {"a b;\nc " + strings.Repeat("d", 4097) + ";", "long.conf:2: a word of more than 4096 bytes"},
		"word.conf":  {"a b;\nc " + strings.Repeat("d", 4095) + ";", "no rate limit found"},
		"open.conf":  {"a b;\nc 'd\n" + strings.Repeat("e f ", 1<<17), "open.conf:2: a word of more than 4096 bytes"},
		"text.conf":  {"a b;\nc '" + strings.Repeat("d ", 2048) + "';", "text.conf:2: a word of more than 4096 bytes"},
		"full.conf":  {"a b;\nc '" + strings.Repeat("d ", 2047) + "';", "no rate limit found"},
		"lua.conf":   {"init_by_lua_block {\n}", "no rate limit found"},
		"if.conf":    {"if () {}", "if.conf: not a configuration of nginx: a directive"},
		"half.conf":  {"init_by_lua_block {\n'}", `unexpected end of file, expecting "}"`},
		"flat.conf":  {strings.Repeat("a {}\n", 200) + strings.Repeat("a '{';", 200), "no rate limit found"},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Import(file); err == nil || !strings.Contains(err.Error(), row.err) {
			t.Errorf("%s: %v, want %q", name, err, row.err)
		}
	}
	if _, err := Import(filepath.Join(dir, "missing")); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Import(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: %v", err)
	}
}

// Whatever a file contains, the policy is valid if it has few enough rules.
func FuzzImport(f *testing.F) {
	for _, name := range []string{"nginx.conf", "ingress.yaml", "apisix.yaml", "apisix.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(strings.TrimPrefix(filepath.Ext(name), "."), text)
	}
	f.Fuzz(func(t *testing.T, extension string, text []byte) {
		if extension != "yaml" && extension != "json" {
			extension = "conf"
			if strings.Contains(string(text), "include") {
				return // would read other files
			}
		}
		file := filepath.Join(t.TempDir(), "x."+extension)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		result, err := Import(file)
		if err != nil || len(result.Rules) > policy.MaxRules || len(result.TrustedProxies) > policy.MaxProxies {
			return
		}
		if written := result.Policy(file); len(written) <= policy.MaxSize {
			if _, err := policy.Parse("x.lua", written); err != nil {
				t.Fatalf("%v\n%s", err, written)
			}
		}
	})
}

// Notes need the lines of the file, and a file without Lua code is not changed.
func FuzzWithoutLua(f *testing.F) {
	f.Add([]byte("http { content_by_lua_block { --[[ }\n]] f('}') }\n}"))
	f.Add([]byte("a '\\'\n' ${b} \"c\n\" # '\n; set_by_lua_block $x { if t[1]-t[2] == 0 then t = {} end }"))
	f.Fuzz(func(t *testing.T, text []byte) {
		kept, err := withoutLua("x.conf", text)
		if err != nil {
			return
		}
		if bytes.Count(kept, []byte("\n")) != bytes.Count(text, []byte("\n")) {
			t.Errorf("%q has another number of lines than %q", kept, text)
		}
		if again, err := withoutLua("x.conf", kept); err != nil || !bytes.Equal(again, kept) {
			t.Errorf("%q became %q, and then %q, %v", text, kept, again, err)
		}
	})
}
