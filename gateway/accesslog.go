package gateway

import (
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"sluice/gateway/internal/ascii"
	"sluice/gateway/proxy"
)

// accessLog buffers one JSON line for each request and writes them together, about once a second. The fields are
// those of the nginx edge (nginx/conf.d/30-log.conf). flush does nothing on a nil log. Safe for concurrent use.
type accessLog struct {
	to  io.Writer
	log *slog.Logger

	mu     sync.Mutex
	lines  []byte
	failed bool // the last write
}

const accessLogSize = 64 << 10 // bytes; a fuller buffer is written immediately

func (l *accessLog) add(ctx *fasthttp.RequestCtx, x *exchange) {
	sent := sizeOf(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.finish(appendEntry(appendTime(l.lines, now), ctx, x), since(ctx, now), sent)
}

// later prepares the line of a request with a streamed response. The returned function logs it, given the
// bytes of the body that were sent.
func (l *accessLog) later(ctx *fasthttp.RequestCtx, x *exchange) func(body int64) {
	head, entry, start := int64(len(ctx.Response.Header.Header())), appendEntry(nil, ctx, x), ctx.Time()
	return func(body int64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		now := time.Now()
		l.finish(append(appendTime(l.lines, now), entry...), now.Sub(start), head+body)
	}
}

// since returns the duration of a request, or 0 if it ended before fasthttp recorded its start.
func since(ctx *fasthttp.RequestCtx, now time.Time) time.Duration {
	if ctx.Time().IsZero() {
		return 0
	}
	return now.Sub(ctx.Time())
}

func sizeOf(ctx *fasthttp.RequestCtx) int64 {
	resp := &ctx.Response
	if resp.SkipBody || ctx.IsHead() {
		return int64(len(resp.Header.Header()))
	}
	body := len(resp.Body())
	if !proxy.Bodyless(resp.StatusCode()) {
		resp.Header.SetContentLength(body)
	}
	return int64(len(resp.Header.Header()) + body)
}

func appendTime(b []byte, now time.Time) []byte {
	return strconv.AppendFloat(append(b, `{"time":`...), float64(now.UnixMilli())/1000, 'f', 3, 64)
}

// appendEntry appends the fields that are known before the response is sent.
func appendEntry(b []byte, ctx *fasthttp.RequestCtx, x *exchange) []byte {
	var method, agent, rule, remaining string
	if !x.unread {
		method, agent = ascii.String(ctx.Method()), ascii.String(ctx.UserAgent())
	}
	if x.rule != nil {
		rule, remaining = x.rule.Name, strconv.Itoa(x.remaining)
	}
	b = append(x.Client.AppendTo(append(b, `,"client":"`...)), '"')
	b = appendField(b, "buyer", x.buyer)
	b = appendField(b, "method", method)
	b = appendField(b, "path", ascii.String(x.path))
	b = strconv.AppendInt(append(b, `,"status":`...), int64(ctx.Response.StatusCode()), 10)
	b = appendField(b, "verdict", x.verdict)
	b = appendField(b, "rule", rule)
	b = appendField(b, "remaining", remaining)
	b = appendField(b, "shadow", x.shadow)
	b = appendField(b, "reason", x.reason)
	b = appendField(b, "request_id", ascii.String(x.ID[:]))
	b = appendField(b, "upstream", ascii.String(x.Attempts.Upstreams))
	b = appendField(b, "upstream_status", ascii.String(x.Attempts.Statuses))
	b = appendField(b, "upstream_seconds", ascii.String(x.Attempts.Seconds))
	b = append(append(b, `,"worker":`...), worker...)
	return appendField(b, "agent", agent)
}

var worker = strconv.Itoa(os.Getpid())

// finish completes the last line of b and makes b the buffer. It writes the buffer if it has more than accessLogSize
// bytes.
func (l *accessLog) finish(b []byte, took time.Duration, sent int64) {
	b = strconv.AppendInt(append(b, `,"bytes":`...), sent, 10)
	b = strconv.AppendFloat(append(b, `,"seconds":`...), took.Seconds(), 'f', 3, 64)
	l.lines = append(b, "}\n"...)
	if len(l.lines) > accessLogSize {
		l.write()
	}
}

func (l *accessLog) flush() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write()
}

// write discards the lines if they cannot be written, so that a full disk does not exhaust the memory.
func (l *accessLog) write() {
	if len(l.lines) == 0 {
		return
	}
	_, err := l.to.Write(l.lines)
	if err != nil && !l.failed {
		l.log.Error("writing the access log failed", "err", err)
	}
	l.failed = err != nil
	l.lines = l.lines[:0]
}

func appendField(b []byte, name, text string) []byte {
	b = append(append(append(b, `,"`...), name...), `":"`...)
	return append(appendText(b, text), '"')
}

// appendText appends s as the inside of a JSON string.
func appendText(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
			continue
		}
		i++
	}
	return b
}
