package replay

import (
	"fmt"
	"testing"
)

func TestParse(t *testing.T) {
	edge := func(fields string) string {
		return `{"time":1795255200.500,"client":"192.0.2.7","buyer":"","method":"GET","path":"/v1/sales","status":200,` +
			`"seconds":0.250,` + fields + `}`
	}
	const started, ended = 1795255200250, 1795255200500
	combined := func(request string) string {
		return `192.0.2.7 - - [21/Nov/2026:10:00:00 +0100] "` + request + `" 200 512 "-" "curl/8"`
	}
	for _, c := range []struct{ name, line, want string }{
		{"allowed", edge(`"verdict":"allow"`), fmt.Sprintf("%d %d 192.0.2.7 evaluated GET /v1/sales ", started, ended)},
		{
			"refused", edge(`"verdict":"deny","rule":"ip"`),
			fmt.Sprintf("%d %d 192.0.2.7 evaluated refused GET /v1/sales ", started, ended),
		},
		{
			"too many concurrent requests", edge(`"verdict":"deny","rule":"concurrency"`),
			fmt.Sprintf("%d %d 192.0.2.7 GET /v1/sales ", started, ended),
		},
		{
			"bad token", edge(`"verdict":"unauthorized"`),
			fmt.Sprintf("%d %d 192.0.2.7 evaluated unauthorized GET /v1/sales ", started, ended),
		},
		{"no bucket", edge(`"verdict":"error"`), fmt.Sprintf("%d %d 192.0.2.7 evaluated GET /v1/sales ", started, ended)},
		{
			"no rule matched", edge(`"verdict":"","upstream":"10.0.0.1:80"`),
			fmt.Sprintf("%d %d 192.0.2.7 evaluated GET /v1/sales ", started, ended),
		},
		{
			"no backend available", `{"time":1,"client":"::1","method":"GET","path":"/","status":503,"verdict":""}`,
			"1000 1000 ::1 evaluated GET / ",
		},
		{
			"answered by the edge", edge(`"verdict":"","upstream":""`),
			fmt.Sprintf("%d %d 192.0.2.7 GET /v1/sales ", started, ended),
		},
		{
			"sold out, from the cache", edge(`"verdict":"sold_out"`),
			fmt.Sprintf("%d %d 192.0.2.7 cached GET /v1/sales ", started, ended),
		},
		{
			"a buyer with escapes",
			`{"time":2.0005,"client":"2001:db8::1","buyer":"a\"bü","method":"POST","path":"/x\\y","verdict":"allow"}`,
			`2001 2001 2001:db8::1 evaluated POST /x\y a"bü`,
		},
		{
			"combined", combined("GET /v1/sales?x=1 HTTP/1.1"),
			"1795251600000 1795251600000 192.0.2.7 evaluated coarse GET /v1/sales ",
		},
		{
			"combined, escaped path", combined("GET /v1/s%61les HTTP/2.0"),
			"1795251600000 1795251600000 192.0.2.7 evaluated coarse GET /v1/sales ",
		},
		{
			"combined, nginx's escapes", combined(`GET /\x22a\x5Cx HTTP/1.1`),
			`1795251600000 1795251600000 192.0.2.7 coarse GET /"a `,
		},
		{
			"combined, a reserved path", combined("GET /healthz HTTP/1.1"),
			"1795251600000 1795251600000 192.0.2.7 coarse GET /healthz ",
		},
		{
			"combined, a rejected path", combined("GET /a//b HTTP/1.1"),
			"1795251600000 1795251600000 192.0.2.7 coarse GET /a//b ",
		},
		{"combined, a TLS greeting", combined(`\x16\x03\x01`), "1795251600000 1795251600000 192.0.2.7 coarse   "},
		{"combined, nothing", combined("-"), "1795251600000 1795251600000 192.0.2.7 coarse   "},
		{
			"combined, a user with spaces", `::1 - a b [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 404 0`,
			"1795251600000 1795251600000 ::1 evaluated coarse GET / ",
		},
		{
			"combined, Apache's escapes", `::1 - - [21/Nov/2026:09:00:00 +0000] "GET /\"x HTTP/1.1" 404 0`,
			`1795251600000 1795251600000 ::1 coarse GET / `,
		},
		{"blank", "", errFormat.Error()},
		{"words", "hello, world", errFormat.Error()},
		{"half a line", edge(`"verdict":"allow"`)[:60], errJSON.Error()},
		{"two lines in one", edge(`"verdict":"allow"`) + edge(`"verdict":"allow"`), errJSON.Error()},
		{"no time", `{"client":"::1","method":"GET","path":"/"}`, errTime.Error()},
		{"time as text", `{"time":"now","client":"::1","method":"GET","path":"/"}`, errTime.Error()},
		{"time in milliseconds", `{"time":1795255200500,"client":"::1","method":"GET","path":"/"}`, errTime.Error()},
		{"time below zero", `{"time":-5,"client":"::1","method":"GET","path":"/"}`, errTime.Error()},
		{
			"a duration of years", `{"time":1795255200,"seconds":1e9,"client":"::1","method":"GET","path":"/"}`,
			errSpan.Error(),
		},
		{"a negative duration", `{"time":1795255200,"seconds":-1,"client":"::1","method":"GET","path":"/"}`, errSpan.Error()},
		{"no client", `{"time":1,"client":"unix:","method":"GET","path":"/"}`, errClient.Error()},
		{"no path", `{"time":1,"client":"::1","method":"GET"}`, errPath.Error()},
		{"combined, no client", `host - - [21/Nov/2026:10:00:00 +0100] "GET / HTTP/1.1" 200 5`, errClient.Error()},
		{"combined, no time", `::1 - - [yesterday] "GET / HTTP/1.1" 200 5`, errClock.Error()},
		{"combined, a time that is not", `::1 - - [32/Nov/2026:10:00:00 +0100] "GET / HTTP/1.1" 200 5`, errClock.Error()},
		{"combined, no status", `::1 - - [21/Nov/2026:10:00:00 +0100] "GET / HTTP/1.1" - 5`, errStatus.Error()},
		{"combined, cut off", `::1 - - [21/Nov/2026:10:00:00 +0100] "GET / HT`, errStatus.Error()},
	} {
		var p parser
		var l logLine
		var got string
		if err := p.parse([]byte(c.line), &l); err != nil {
			got = err.Error()
		} else {
			flags := ""
			for _, f := range []struct {
				name string
				set  bool
			}{
				{"evaluated", l.Evaluated}, {"cached", l.Cached}, {"coarse", l.Coarse}, {"unauthorized", l.Unauthorized},
				{"refused", l.Refused},
			} {
				if f.set {
					flags += f.name + " "
				}
			}
			got = fmt.Sprintf("%d %d %s %s%s %s %s", l.At, l.Logged, l.Client, flags, l.Method, l.Path, l.Buyer)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// For every line, the result must be within its bounds, and the Parser must remain usable.
func FuzzParse(f *testing.F) {
	for _, s := range []string{string(jsonLine), `{"time":1e308,"seconds":-0}`, `{`, `{"client":{}}`, "\x1f\x8b", "\x00",
		`1.2.3.4 - - [21/Nov/2026:10:00:00 +0100] "GET /%zz\x1 HTTP/1.1" 200 5 "-" "x"`, `:: - [ [21/Nov/2026:10:00:00 ` +
			`+0100] "" 200`, `fe80::1%eth0 - - [x] "\`} {
		f.Add([]byte(s))
	}
	for _, line := range oddLines {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var p parser
		var l logLine
		if p.parse(line, &l) == nil {
			if !l.Client.IsValid() || l.At > l.Logged || l.Logged > maxTime*1000 || l.At < -maxSpan*1000 {
				t.Fatalf("%q: %+v", line, l)
			}
			if l.Evaluated && l.Cached || l.Evaluated && len(l.Method) == 0 && l.Coarse {
				t.Fatalf("%q: %+v", line, l)
			}
			_ = addressName(l.Client).String()
		}
		if err := p.parse(jsonLine, &l); err != nil || string(l.Buyer) != "buyer-17" {
			t.Fatalf("after %q: %v, %+v", line, err, l)
		}
	})
}

var oddLines = []string{
	string(jsonLine), `{}`, `{`, ``, `{"time":}`, `{"time":1,}`, `{"time":1`, `{"time":1}}`, `{"a":"b" }`,
	`{"a":"b","time":5}x`, `{,"a":"b"}`, `{"a"}`, `{"a":"b""c":"d"}`,
	`{"time":1,"time":2}`, `{"time":0,"time":2}`, `{"seconds":0,"seconds":2}`, `{"status":0,"status":500}`,
	`{"time":"1"}`, `{"client":1,"client":"::1"}`, `{"client":"","client":"::1"}`,
	`{"time":1.2.3}`, `{"time":.}`, `{"time":1.}`, `{"time":-1}`, `{"time":1e3}`, `{"time":00012.500}`, `{"bytes":..}`,
	`{"status":5.5}`, `{"status":99999999999999999999}`,
	`{"time":nan}`, `{"path":null}`, `{"path":{"path":"/"}}`, `{"path":["/"]}`, `{"a":{"path":"/x"},"path":"/"}`,
	`{"path":"\u002f"}`, `{"p\u0061th":"/"}`, `{"path":"` + "\t\xff" + `"}`,
	`{"method":"","path":""}`, `{"":"","":""}`, ` {"time":1}`, `{"time":1} `,
}
