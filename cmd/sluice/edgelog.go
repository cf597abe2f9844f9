package main

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"strings"
)

// nginxLog writes the error log of nginx to a logger: one record for each line, with the line's level. Not safe for
// concurrent use.
type nginxLog struct {
	log     *slog.Logger
	partial []byte     // a line without its end, shorter than maxNginxLine
	level   slog.Level // of the last line
	divided bool       // the next text continues the last line
}

// maxNginxLine is the length, in bytes, after which a line is divided into several records. nginx truncates its own
// lines to 2 KiB; lines of libraries have no bound.
const maxNginxLine = 64 << 10

// The parts of nginx's line: the level, the position in a Lua module, and the text. The time and the process are left
// out.
var nginxLine = regexp.MustCompile(
	`^(?:nginx: |\d{4}/\d\d/\d\d \d\d:\d\d:\d\d )\[(\w+)\] (?:\d+#\d+: )?(?:\*\d+ )?` +
		`(\[lua\] \S+:\d+: (?:[\w.]+\(\): )?)?(.*)$`)

// byClient matches the errors that nginx logs for invalid requests. These requests are also in the access log.
var byClient = regexp.MustCompile(`^client (sent |intended to send )`)

func (l *nginxLog) Write(p []byte) (int, error) {
	rest := append(l.partial, p...)
	for {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		switch {
		case whole:
			rest = after
		case len(rest) < maxNginxLine:
			l.partial = rest
			return len(p), nil
		default:
			line, rest = rest[:maxNginxLine], rest[maxNginxLine:]
		}
		l.line(strings.TrimSuffix(string(line), "\r"))
		l.divided = !whole
	}
}

// end logs a last line without a line feed, such as that of a killed process. Call it once, after nginx has ended.
func (l *nginxLog) end() { _, _ = l.Write([]byte("\n")) }

// line logs one line, or a part of a divided line. A part has the level of the part before it. A line without the
// prefix of nginx's lines is at least a warning: it continues an error, as a Lua stack trace does, or it is from a
// library that ends the process.
func (l *nginxLog) line(line string) {
	if l.divided {
		// keeps the level
	} else if parts := nginxLine.FindStringSubmatch(line); parts != nil {
		line = parts[3]
		l.level = nginxLevel(parts[1], parts[2] != "", line)
	} else {
		l.level = max(l.level, slog.LevelWarn)
	}
	if line != "" {
		l.log.Log(context.Background(), l.level, visible(line), "from", "nginx") // it may contain text of a client
	}
}

// nginxLevel returns the level of a line of nginx. A notice of a Lua module reports a loaded policy, so it is logged at
// info level. Other notices are about processes and signals, and are logged at debug level.
func nginxLevel(name string, lua bool, text string) slog.Level {
	switch name {
	case "emerg", "alert", "crit", "error":
		if !byClient.MatchString(text) {
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
