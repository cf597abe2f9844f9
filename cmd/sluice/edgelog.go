package main

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"strings"
)

// nginxLog writes the error log of nginx to a logger: a line for each line, with its level. Not safe for concurrent
// use.
type nginxLog struct {
	log     *slog.Logger
	partial []byte     // a line without its end
	level   slog.Level // of the last line
}

// The parts of nginx's line: the level, the position in a Lua module, and the text. The time and the process are left
// out.
var nginxLine = regexp.MustCompile(
	`^(?:nginx: |\d{4}/\d\d/\d\d \d\d:\d\d:\d\d )\[(\w+)\] (?:\d+#\d+: )?(?:\*\d+ )?` +
		`(\[lua\] \S+:\d+: (?:[\w.]+\(\): )?)?(.*)$`)

// tooLarge begins the errors that nginx logs for a body above the limit. The access log has these requests.
const tooLarge = "client intended to send too large "

func (l *nginxLog) Write(p []byte) (int, error) {
	rest := append(l.partial, p...)
	for {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if !whole {
			l.partial = rest
			return len(p), nil
		}
		rest = after
		l.line(strings.TrimSuffix(string(line), "\r"))
	}
}

// line logs one line. One that does not begin as nginx's do, for example of a stack of Lua, belongs to the one before.
func (l *nginxLog) line(line string) {
	if parts := nginxLine.FindStringSubmatch(line); parts != nil {
		line = parts[3]
		l.level = nginxLevel(parts[1], parts[2] != "", line)
	}
	if line != "" {
		l.log.Log(context.Background(), l.level, line, "from", "nginx")
	}
}

// nginxLevel returns the level of a line of nginx. Notices of the Lua modules are those of a loaded policy, all others
// are about processes and signals.
func nginxLevel(name string, lua bool, text string) slog.Level {
	switch name {
	case "emerg", "alert", "crit", "error":
		if !strings.HasPrefix(text, tooLarge) {
			return slog.LevelError
		}
	case "warn":
		return slog.LevelWarn
	case "notice":
		if lua {
			return slog.LevelInfo
		}
	}
	return slog.LevelDebug
}
