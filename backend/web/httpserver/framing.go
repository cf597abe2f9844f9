package httpserver

import (
	"bytes"
	"errors"
	"net"

	"github.com/valyala/fasthttp"

	"sluice/internal/problem"
)

var (
	errFraming    = NewProblem(problem.BadRequest, "Send either Content-Length or Transfer-Encoding: chunked, not both.")
	errMethod     = NewProblem(problem.BadRequest, "Unknown request method.")
	errUnreadable = NewProblem(problem.BadRequest, "The request is not valid HTTP.")
	errTooSlow    = NewProblem(problem.RequestTimeout, "The request took too long to arrive.")
	errHead       = NewProblem(problem.HeaderTooLarge, "The request line and headers together exceed 16 KiB.")
	errBody       = NewProblem(problem.BodyTooLarge, "The request body is too large.")
)

// ambiguousFraming reports whether two HTTP parsers could disagree about where the body ends: the request has both
// lengths, or a Transfer-Encoding other than chunked. fasthttp drops Content-Length in favor of Transfer-Encoding, so
// ambiguousFraming reads the raw headers. Such a request is rejected and its connection closed (RFC 9112, section
// 6.1).
func ambiguousFraming(h *fasthttp.RequestHeader) bool {
	var length, encoding bool
	for raw := h.RawHeaders(); len(raw) > 0; {
		var line []byte
		line, raw, _ = bytes.Cut(raw, []byte{'\n'})
		if len(line) == 0 {
			continue
		}
		switch line[0] | 0x20 {
		case 'c':
			length = length || named(line, "content-length")
		case 't':
			if named(line, "transfer-encoding") {
				if encoding || !bytes.EqualFold(bytes.TrimSpace(line[len("transfer-encoding:"):]), []byte("chunked")) {
					return true
				}
				encoding = true
			}
		}
	}
	return length && encoding
}

// named reports whether a header line has the given name, which must be in lower case.
func named(line []byte, name string) bool {
	return len(line) > len(name) && line[len(name)] == ':' && bytes.EqualFold(line[:len(name)], []byte(name))
}

// unreadable maps a parse error of fasthttp to a problem. The error's text is not sent, because it quotes the request.
func unreadable(err error) error {
	if _, ok := errors.AsType[*fasthttp.ErrSmallBuffer](err); ok {
		return errHead
	}
	if errors.Is(err, fasthttp.ErrBodyTooLarge) {
		return errBody
	}
	if network, ok := errors.AsType[net.Error](err); ok && network.Timeout() {
		return errTooSlow
	}
	return errUnreadable
}
