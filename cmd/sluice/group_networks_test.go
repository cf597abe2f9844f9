package main

import (
	"strings"
	"testing"
)

func TestURLThatTheGroupRejectsNamesTheFlag(t *testing.T) {
	var g groupFlags
	var bad problems
	g.finish(func(string) string { return "" }, &bad)
	err := g.cfg.Webhooks.CheckURL("http://10.0.0.1:8080/hooks")
	if want := "--allow-private of the process that sends webhooks"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q in it", err, want)
	}
}
