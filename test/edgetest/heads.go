package edgetest

import (
	_ "embed"
	"strconv"
	"strings"
)

//go:embed hostile_heads.txt
var hostileHeads string

// HostileHeads returns request heads that parsers interpret differently, by name. An edge must answer each with a
// 400, close the connection, and send nothing to a backend.
func HostileHeads() map[string]string {
	heads := map[string]string{}
	for line := range strings.Lines(hostileHeads) {
		name, quoted, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		head, err := strconv.Unquote(quoted)
		if err != nil {
			panic(name + ": " + err.Error())
		}
		heads[name] = head
	}
	return heads
}
