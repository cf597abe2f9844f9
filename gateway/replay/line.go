package replay

import (
	"bytes"
	"errors"
	"math"
	"net/netip"
	"strconv"
	"time"

	"github.com/valyala/fastjson"

	"sluice/gateway"
	"sluice/gateway/policy"
)

// logLine is a request of an access log. Its slices are valid until the next call of parse, or until the text is
// overwritten.
type logLine struct {
	At     int64      // arrival of the request in Unix milliseconds; whole seconds if Coarse
	Logged int64      // end of the request in Unix milliseconds
	Coarse bool       // the log has a resolution of seconds
	Client netip.Addr // behind trusted proxies if an edge wrote the log, otherwise the peer
	Buyer  []byte     // verified subject, if a rule by token applied
	Method []byte
	Path   []byte // decoded, without the query

	Evaluated    bool // rules were evaluated, or would have been
	Cached       bool // answered from the refusal cache before any rule
	Unauthorized bool // the token was missing or invalid
	Refused      bool // refused by a rule
	Unavailable  bool // rejected because a rule could not be evaluated
}

// parser parses lines of the edges' JSON logs and of nginx's combined format, which may be mixed. The zero value is
// ready for use. Not safe for concurrent use.
type parser struct {
	json      fastjson.Parser
	path      []byte
	unescaped []byte
	clock     []byte // text of the last time of a combined log, of which ms is the value
	ms        int64
}

// The errors of parse.
var (
	errFormat = errors.New("neither JSON of an edge nor nginx's combined format")
	errJSON   = errors.New("not JSON")
	errTime   = errors.New(`no "time" in seconds`)
	errSpan   = errors.New(`"seconds" is not a valid duration`)
	errClient = errors.New("no client address")
	errPath   = errors.New(`no "method" or "path"`)
	errClock  = errors.New("no time such as [21/Nov/2026:10:00:00 +0000]")
	errStatus = errors.New("no status after the request")
)

// parse parses a line without its line break. After an error, l is undefined.
func (p *parser) parse(line []byte, l *logLine) error {
	*l = logLine{}
	line = bytes.TrimSpace(line)
	if len(line) > 0 && line[0] == '{' {
		return p.parseJSON(line, l)
	}
	return p.parseCombined(line, l)
}

const (
	maxTime = 1 << 37 // seconds, in the year 6325; larger values are milliseconds
	maxSpan = 30 * 24 * 3600
)

func (p *parser) parseJSON(line []byte, l *logLine) error {
	v, err := p.json.ParseBytes(line)
	if err != nil {
		return errJSON
	}
	ended, err := number(v, "time")
	if err != nil || !(ended > 0 && ended < maxTime) {
		return errTime
	}
	took, err := number(v, "seconds")
	if err != nil || !(took >= 0 && took < maxSpan) {
		return errSpan
	}
	l.Logged = int64(math.Round(ended * 1000))
	l.At = l.Logged - int64(math.Round(took*1000))
	if l.Client, err = netip.ParseAddr(string(v.GetStringBytes("client"))); err != nil {
		return errClient
	}
	l.Method, l.Path, l.Buyer = v.GetStringBytes("method"), v.GetStringBytes("path"), v.GetStringBytes("buyer")
	if l.Method == nil || l.Path == nil {
		return errPath
	}
	switch verdict := string(v.GetStringBytes("verdict")); verdict {
	case "sold_out", "scheduled", "paused", "closed":
		l.Cached = true
	case "":
		// No rule matched, or the edge answered before it evaluated the rules.
		l.Evaluated = len(v.GetStringBytes("upstream")) > 0 || v.GetInt("status") >= 500
	default:
		// A request above the limit of concurrent requests is counted by no rule.
		l.Evaluated = string(v.GetStringBytes("rule")) != policy.ConcurrencyRule
		l.Unauthorized, l.Refused = verdict == "unauthorized", l.Evaluated && verdict == "deny"
		l.Unavailable = verdict == "error"
	}
	return nil
}

// number returns a number field, or 0 if there is none.
func number(v *fastjson.Value, name string) (float64, error) {
	field := v.Get(name)
	if field == nil {
		return 0, nil
	}
	return field.Float64()
}

// parseCombined parses ADDRESS - USER [TIME] "METHOD TARGET PROTOCOL" STATUS and ignores the rest of the line.
func (p *parser) parseCombined(line []byte, l *logLine) error {
	space := bytes.IndexByte(line, ' ')
	open := bytes.Index(line, []byte(" ["))
	if space < 0 || open < 0 {
		return errFormat
	}
	var err error
	if l.Client, err = netip.ParseAddr(string(line[:space])); err != nil {
		return errClient
	}
	rest := line[open+2:]
	end := bytes.Index(rest, []byte(`] "`))
	if end < 0 {
		return errClock
	}
	if l.Logged, err = p.time(rest[:end]); err != nil {
		return errClock
	}
	l.At, l.Coarse = l.Logged, true
	rest = rest[end+3:]
	end = closingQuote(rest)
	if end < 0 || end+2 > len(rest) || rest[end+1] != ' ' {
		return errStatus
	}
	request, status := rest[:end], rest[end+2:]
	if after := bytes.IndexByte(status, ' '); after >= 0 {
		status = status[:after]
	}
	if n, err := strconv.Atoi(string(status)); err != nil || n < 100 || n > 999 {
		return errStatus
	}
	p.request(request, l)
	return nil
}

// request parses "METHOD TARGET PROTOCOL". For any other text, no rules were evaluated.
func (p *parser) request(text []byte, l *logLine) {
	if bytes.IndexByte(text, '\\') >= 0 {
		p.unescaped = unescape(p.unescaped[:0], text)
		text = p.unescaped
	}
	first, last := bytes.IndexByte(text, ' '), bytes.LastIndexByte(text, ' ')
	if first <= 0 || last <= first || !bytes.HasPrefix(text[last+1:], []byte("HTTP/")) {
		return
	}
	l.Method = text[:first]
	p.path, l.Evaluated = gateway.RulePath(p.path[:0], text[first+1:last])
	l.Path = p.path
}

func (p *parser) time(text []byte) (ms int64, err error) {
	if bytes.Equal(text, p.clock) {
		return p.ms, nil
	}
	t, err := time.Parse("02/Jan/2006:15:04:05 -0700", string(text))
	if err != nil || t.Unix() <= 0 || t.Unix() >= maxTime {
		return 0, errClock
	}
	p.clock, p.ms = append(p.clock[:0], text...), t.UnixMilli()
	return p.ms, nil
}

// closingQuote returns the index of the closing quote, or -1.
func closingQuote(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return -1
}

// unescape appends text and replaces nginx's \xHH by the byte.
func unescape(dst, text []byte) []byte {
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) && text[i+1] == 'x' {
			if b, err := strconv.ParseUint(string(text[i+2:i+4]), 16, 8); err == nil {
				dst = append(dst, byte(b))
				i += 3
				continue
			}
		}
		dst = append(dst, text[i])
	}
	return dst
}
