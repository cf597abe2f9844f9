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
)

// Line is one request as an access log tells of it. Its slices are good until the next line is parsed, or the text of this one is overwritten.
type Line struct {
	At     int64      // when the request came, ms since 1970; whole seconds where Coarse
	Logged int64      // when the line was written: the request's end
	Coarse bool       // the log knows whole seconds only
	Client netip.Addr // after trusted proxies, where the edge wrote the log; else the peer
	Buyer  []byte     // the verified subject, where a token rule asked for it
	Method []byte
	Path   []byte // decoded, without the query

	Asked        bool // the edge's rules were asked, or would have been
	Repeated     bool // a sale's refusal was repeated from memory: no rule was asked
	Unauthorized bool // the token was refused
	Refused      bool // a rule refused it at the time
}

// Parser reads lines of the edges' JSON logs and of nginx's combined format, which may be mixed. The zero value is ready; one goroutine at a time.
type Parser struct {
	json      fastjson.Parser
	path      []byte
	unescaped []byte
	clock     []byte // the text of a combined log's latest time, and what it means: a second has many lines
	ms        int64
}

// What is wrong with a line.
var (
	errFormat = errors.New("neither JSON of an edge nor nginx's combined format")
	errJSON   = errors.New("not JSON")
	errTime   = errors.New(`no "time" in seconds`)
	errSpan   = errors.New(`"seconds" is not how long a request takes`)
	errClient = errors.New("no client address")
	errPath   = errors.New(`no "method" or "path"`)
	errClock  = errors.New("no time such as [21/Nov/2026:10:00:00 +0000]")
	errStatus = errors.New("no status after the request")
)

// Parse reads a line, which has no line break, into l. l is not to be used after an error.
func (p *Parser) Parse(line []byte, l *Line) error {
	*l = Line{}
	line = bytes.TrimSpace(line)
	if len(line) > 0 && line[0] == '{' {
		return p.parseJSON(line, l)
	}
	return p.parseCombined(line, l)
}

const (
	maxTime = 1 << 37 // s: the year 6325. More is milliseconds, or no time at all
	maxSpan = 30 * 24 * 3600
)

func (p *Parser) parseJSON(line []byte, l *Line) error {
	var r record
	if !r.scan(line) {
		if err := r.read(&p.json, line); err != nil {
			return err
		}
	}
	if !(r.time > 0 && r.time < maxTime) {
		return errTime
	}
	if !(r.seconds >= 0 && r.seconds < maxSpan) {
		return errSpan
	}
	l.Logged = int64(math.Round(r.time * 1000))
	l.At = l.Logged - int64(math.Round(r.seconds*1000))
	var err error
	if l.Client, err = netip.ParseAddr(string(r.client)); err != nil {
		return errClient
	}
	l.Method, l.Path, l.Buyer = r.method, r.path, r.buyer
	if l.Method == nil || l.Path == nil {
		return errPath
	}
	switch string(r.verdict) {
	case "sold_out", "scheduled", "paused", "closed":
		l.Repeated = true
	case "":
		// No rule covered it; or the edge answered by itself before it looked.
		l.Asked = len(r.upstream) > 0 || r.status >= 500
	default:
		l.Asked = true
		l.Unauthorized, l.Refused = string(r.verdict) == "unauthorized", string(r.verdict) == "deny"
	}
	return nil
}

// parseCombined reads ADDRESS - USER [TIME] "METHOD TARGET PROTOCOL" STATUS and leaves the rest of the line alone.
func (p *Parser) parseCombined(line []byte, l *Line) error {
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
	end = quoteEnd(rest)
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

// request reads "METHOD TARGET PROTOCOL". Whatever else stands there was no request that rules were asked about.
func (p *Parser) request(text []byte, l *Line) {
	if bytes.IndexByte(text, '\\') >= 0 {
		p.unescaped = unescape(p.unescaped[:0], text)
		text = p.unescaped
	}
	first, last := bytes.IndexByte(text, ' '), bytes.LastIndexByte(text, ' ')
	if first <= 0 || last <= first || !bytes.HasPrefix(text[last+1:], []byte("HTTP/")) {
		return
	}
	l.Method = text[:first]
	p.path, l.Asked = gateway.RulePath(p.path[:0], text[first+1:last])
	l.Path = p.path
}

func (p *Parser) time(text []byte) (ms int64, err error) {
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

// quoteEnd is where the quoted text that b begins with ends, or -1.
func quoteEnd(b []byte) int {
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

// unescape appends text with nginx's \xHH as the byte that it stands for.
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
