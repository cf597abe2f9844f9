package replay

import (
	"testing"
)

var jsonLine = []byte(`{"time":1795255200.123,"client":"192.0.2.7","buyer":"buyer-17","method":"POST",` +
	`"path":"/v1/sales/shoe/orders","status":202,"verdict":"allow","rule":"ip",` +
	`"remaining":"39","shadow":"","reason":"","request_id":"0123456789abcdef0123456789abcdef","bytes":512,` +
	`"seconds":0.013,"upstream":"127.0.0.1:8081","upstream_status":"202",` +
	`"upstream_seconds":"0.003","worker":1234,"agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, ` +
	`like Gecko) Chrome/120.0 Safari/537.36"}`)

func BenchmarkParseJSON(b *testing.B) {
	b.SetBytes(int64(len(jsonLine)))
	b.ReportAllocs()
	var p parser
	var l logLine
	for b.Loop() {
		if err := p.parse(jsonLine, &l); err != nil {
			b.Fatal(err)
		}
	}
}
