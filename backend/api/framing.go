package api

import (
	"bytes"
	"errors"
	"net"
	"slices"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"sluice/internal/problem"
)

var (
	errFraming    = refusalOf(problem.BadRequest, "A request may have Content-Length or Transfer-Encoding: chunked, not both.")
	errMethod     = refusalOf(problem.BadRequest, "The request method is not known.")
	errUnreadable = refusalOf(problem.BadRequest, "The request could not be read as HTTP.")
	errTooSlow    = refusalOf(problem.RequestTimeout, "The request took too long to arrive.")
	errHead       = refusalOf(problem.HeaderTooLarge, "The request line and headers together may have 16 KiB.")
	errBody       = refusalOf(problem.BodyTooLarge, "The request body is too large.")
)

// ambiguousFraming tells whether two readers of the request could disagree about where its body ends: it has both lengths, or a
// Transfer-Encoding other than chunked. fasthttp lets Transfer-Encoding win and forgets the other one, so the raw headers are
// looked at. Such a request is refused and its connection closed (RFC 9112, section 6.1).
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

func named(line []byte, name string) bool {
	return len(line) > len(name) && line[len(name)] == ':' && bytes.EqualFold(line[:len(name)], []byte(name))
}

func knownMethod(m []byte) bool { return slices.Contains(fiber.DefaultMethods, string(m)) }

// unreadable names what fasthttp could not read. Its own words stay here: they quote the request.
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
