package httpserver

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"

	"github.com/valyala/fasthttp"

	"sluice/internal/problem"
)

var (
	errFraming    = NewProblem(problem.BadRequest, "Send either Content-Length or Transfer-Encoding: chunked, not both.")
	errMethod     = NewProblem(problem.BadRequest, "Unknown request method.")
	errUnreadable = NewProblem(problem.BadRequest, "The request is not valid HTTP.")
	errTooSlow    = NewProblem(problem.RequestTimeout, "The request took too long to arrive.")
	errBody       = NewProblem(problem.BodyTooLarge, "The request body is too large.")
	errHead       = NewProblem(problem.HeaderTooLarge, "The request line and headers together exceed 16 KiB.")
)

// ambiguousFraming reports whether two HTTP parsers could disagree about where the body ends: the request has both
// lengths, or a Transfer-Encoding other than chunked. fasthttp drops Content-Length in favor of Transfer-Encoding, so
// ambiguousFraming reads the raw headers. Such a request is rejected and its connection closed (RFC 9112, section
// 6.1).
func ambiguousFraming(rawHeaders []byte) bool {
	var length, encoding bool
	for line := range bytes.SplitSeq(rawHeaders, []byte{'\n'}) {
		name, value, _ := bytes.Cut(line, []byte{':'})
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			length = true
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			if encoding || !bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked")) {
				return true
			}
			encoding = true
		}
	}
	return length && encoding
}

// unreadable maps a parse error of fasthttp to a problem. The error's text is not sent, because it quotes the request.
func (s *Server) unreadable(head *fasthttp.RequestHeader, err error) error {
	if _, ok := errors.AsType[*fasthttp.ErrSmallBuffer](err); ok {
		return errHead
	}
	if errors.Is(err, fasthttp.ErrBodyTooLarge) {
		// fasthttp has reset the head of a chunked body, so its limit is unknown.
		if s.cfg.Upload != nil && head.ContentLength() <= 0 {
			return errBody
		}
		limit := cmp.Or(s.received(head).MaxRequestBodySize, s.cfg.BodyLimit)
		return NewProblem(problem.BodyTooLarge, "The request body exceeds "+sizeText(limit)+".")
	}
	if network, ok := errors.AsType[net.Error](err); ok && network.Timeout() {
		return errTooSlow
	}
	return errUnreadable
}

// sizeText returns a number of bytes as whole MiB or KiB.
func sizeText(bytes int) string {
	if bytes%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}
