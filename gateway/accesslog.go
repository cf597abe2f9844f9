package gateway

import (
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"
)

// accessLog gathers one line for each request that the policy looked at and writes them together. The fields are those of the nginx edge's log
// (nginx/conf.d/30-log.conf). A nil log does nothing.
type accessLog struct {
	to  io.Writer
	log *slog.Logger

	mu     sync.Mutex
	lines  []byte
	failed bool
}

const accessLogSize = 64 << 10 // bytes that are gathered before they are written early

func (l *accessLog) add(ctx *fasthttp.RequestCtx, x *exchange) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	b := append(l.lines, `{"time":`...)
	b = strconv.AppendFloat(b, float64(now.UnixMilli())/1000, 'f', 3, 64)
	b = append(b, `,"client":"`...)
	b = x.client.AppendTo(b)
	b = appendText(append(b, `","buyer":"`...), x.buyer)
	b = appendText(append(b, `","method":"`...), asString(ctx.Method()))
	b = appendText(append(b, `","path":"`...), asString(x.path))
	b = strconv.AppendInt(append(b, `","status":`...), int64(ctx.Response.StatusCode()), 10)
	b = append(append(b, `,"verdict":"`...), x.verdict...)
	b = append(b, `","rule":"`...)
	remaining := ""
	if x.rule != nil {
		b = append(b, x.rule.Name...)
		remaining = strconv.Itoa(x.remaining)
	}
	b = append(append(b, `","remaining":"`...), remaining...)
	b = append(append(b, `","shadow":"`...), x.shadow...)
	b = appendText(append(b, `","reason":"`...), x.reason)
	b = append(append(b, `","request_id":"`...), x.id[:]...)
	b = strconv.AppendFloat(append(b, `","seconds":`...), now.Sub(ctx.Time()).Seconds(), 'f', 3, 64)
	b = append(append(b, `,"upstream":"`...), x.upstream...)
	b = appendText(append(b, `","agent":"`...), asString(ctx.UserAgent()))
	l.lines = append(b, "\"}\n"...)
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

// write drops what cannot be written: a full disk must not fill the memory too.
func (l *accessLog) write() {
	if len(l.lines) == 0 {
		return
	}
	_, err := l.to.Write(l.lines)
	if err != nil && !l.failed {
		l.log.Error("the access log cannot be written", "err", err)
	}
	l.failed = err != nil
	l.lines = l.lines[:0]
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
