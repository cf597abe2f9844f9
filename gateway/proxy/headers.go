package proxy

import (
	"bytes"
	"net/netip"

	"sluice/gateway/internal/ascii"
)

// header is one header line of a request.
type header struct {
	line   []byte // including its CRLF
	name   int    // bytes of the name
	action action
}

// action is what happens to a header line on the way to the backend.
type action uint8

const (
	pass action = iota
	drop
	passIfAlone // a token header: passes if there is no Authorization
)

// value returns the value without surrounding spaces. Tabs are part of the value, as in nginx.
func (h *header) value() []byte {
	return bytes.Trim(h.line[h.name+1:len(h.line)-2], " ")
}

// Headers are the header lines of a request, and the values that the edge needs. The zero value is empty.
type Headers struct {
	lines         []header
	forwarded     []byte // X-Forwarded-For, joined with commas
	hops          int    // X-Forwarded-For lines
	authorization []byte
	token         []byte

	authorizations int    // Authorization lines
	seen           uint32 // headers that pass once, or may occur once
	state          int    // index of the tracestate line, or -1
	authorized     bool   // Authorization is present and not empty
	tokenSeen      bool
	traced         bool // the traceparent is valid
	host           bool
	last           bool // the client requests that the connection is closed
}

func (hs *Headers) reset() {
	*hs = Headers{lines: hs.lines[:0], forwarded: hs.forwarded[:0], state: -1}
}

// read parses the header lines of a validated head. http11 is false for HTTP/1.0. It returns false if a header occurs
// twice that must not: tokens of one kind, the idempotency key, and those that nginx accepts once.
func (hs *Headers) read(raw []byte, http11 bool) bool {
	hs.state, hs.last = -1, !http11
	for len(raw) > 2 {
		end := bytes.IndexByte(raw, '\n') + 1
		colon := bytes.IndexByte(raw[:end], ':')
		if colon < 1 || colon+3 > end || raw[end-2] != '\r' {
			return false
		}
		hs.lines = append(hs.lines, header{line: raw[:end:end], name: colon})
		raw = raw[end:]
		if h := &hs.lines[len(hs.lines)-1]; !hs.classify(h) {
			return false
		}
	}
	if hs.state >= 0 && hs.traced && len(hs.lines[hs.state].value()) > 0 {
		hs.lines[hs.state].action = pass
	}
	return true
}

// classify sets the action of one line. Only the headers listed here pass to a backend, and of repeated lines the
// first one: hop-by-hop headers, forged addresses and the headers that the edge and backends exchange never pass,
// also under names that are introduced later. The nginx edge has the same list (nginx/snippets/proxy.conf). Names are
// grouped by length, so that most of them need no comparison. classify returns false if the request must be rejected.
func (hs *Headers) classify(h *header) bool {
	h.action = drop
	name := h.line[:h.name]
	switch len(name) {
	case len("host"):
		if ascii.EqualFold(name, "host") && len(h.value()) > 0 {
			if h.value()[0] == '[' && !isBracketed(h.value()) {
				return false
			}
			h.action, hs.host = pass, true
		}
	case len("if-match"):
		return hs.once(name, "if-match", ifMatchHeader) && hs.once(name, "if-range", ifRangeHeader)
	case len("if-unmodified-since"):
		return hs.once(name, "if-unmodified-since", unmodifiedHeader)
	case len("token"):
		if ascii.EqualFold(name, "token") {
			if hs.tokenSeen { // parsers disagree about which of two applies
				return false
			}
			hs.tokenSeen = true
			if hs.token = h.value(); len(hs.token) > 0 {
				h.action = passIfAlone
			}
		} else {
			hs.passFirst(h, "range", rangeHeader)
		}
	case len("accept"):
		hs.passFirst(h, "accept", acceptHeader)
		hs.passFirst(h, "origin", originHeader)
		return hs.once(name, "expect", expectHeader)
	case len("connection"):
		if ascii.EqualFold(name, "connection") {
			hs.connection(h.value())
		}
		hs.passFirst(h, "user-agent", agentHeader)
		hs.passFirst(h, "webhook-id", webhookIDHeader)
		if ascii.EqualFold(name, "tracestate") && hs.state < 0 {
			hs.state = len(hs.lines) - 1 // passes together with its traceparent
		}
	case len("traceparent"):
		if hs.passFirst(h, "traceparent", parentHeader); h.action == pass {
			hs.traced = isTraceParent(h.value())
			if !hs.traced {
				h.action = drop
			}
		}
	case len("content-type"):
		hs.passFirst(h, "content-type", typeHeader)
	case len("authorization"):
		if ascii.EqualFold(name, "authorization") {
			if hs.authorizations++; hs.authorizations > 1 {
				return false
			}
			if hs.authorization = h.value(); len(hs.authorization) > 0 {
				h.action, hs.authorized = pass, true
			}
			return true
		}
		if !hs.once(name, "if-none-match", noMatchHeader) || !hs.once(name, "content-range", contentRangeHeader) {
			return false
		}
		hs.passFirst(h, "if-none-match", matchHeader)
		hs.passFirst(h, "last-event-id", eventHeader)
	case len("idempotency-key"):
		switch {
		case ascii.EqualFold(name, "idempotency-key"):
			if hs.seen&keyHeader != 0 {
				return false
			}
			h.action = pass
			hs.seen |= keyHeader
			if len(h.value()) == 0 {
				h.line = emptyKey
			}
		case ascii.EqualFold(name, "x-forwarded-for"):
			if hs.hops++; hs.hops > 1 {
				hs.forwarded = append(hs.forwarded, ", "...)
			}
			hs.forwarded = append(hs.forwarded, h.value()...)
		default:
			hs.passFirst(h, "accept-encoding", encodingHeader)
			hs.passFirst(h, "accept-language", languageHeader)
		}
	case len("if-modified-since"):
		if !hs.once(name, "if-modified-since", modifiedHeader) {
			return false
		}
		hs.passFirst(h, "if-modified-since", sinceHeader)
		hs.passFirst(h, "webhook-timestamp", webhookTimeHeader)
		hs.passFirst(h, "webhook-signature", webhookSignatureHeader)
	case len("access-control-request-method"):
		hs.passFirst(h, "access-control-request-method", corsMethodHeader)
	case len("access-control-request-headers"):
		hs.passFirst(h, "access-control-request-headers", corsHeadersHeader)
	}
	return true
}

// once returns false for the second line with the name want. nginx rejects such requests.
func (hs *Headers) once(name []byte, want string, mark uint32) bool {
	if !ascii.EqualFold(name, want) {
		return true
	}
	first := hs.seen&mark == 0
	hs.seen |= mark
	return first
}

// Bits of Headers.seen: headers of which one line passes, or one line may occur.
const (
	rangeHeader = 1 << iota
	acceptHeader
	originHeader
	agentHeader
	parentHeader
	typeHeader
	matchHeader
	eventHeader
	keyHeader
	encodingHeader
	languageHeader
	sinceHeader
	corsMethodHeader
	corsHeadersHeader
	webhookIDHeader
	webhookTimeHeader
	webhookSignatureHeader
	expectHeader
	ifMatchHeader
	ifRangeHeader
	unmodifiedHeader
	noMatchHeader
	contentRangeHeader
	modifiedHeader
)

// emptyKey replaces an Idempotency-Key without a value, which the nginx edge cannot pass on. Backends handle both
// alike.
var emptyKey = []byte("Idempotency-Key: \"\"\r\n")

// isBracketed reports whether host is an IPv6 address in brackets, with an optional port.
func isBracketed(host []byte) bool {
	inside, _, found := bytes.Cut(host[1:], []byte{']'})
	a, err := netip.ParseAddr(ascii.String(inside))
	return found && err == nil && a.Is6() && a.Zone() == ""
}

// passFirst sets the action pass for the first line with this name, unless its value is empty.
func (hs *Headers) passFirst(h *header, name string, mark uint32) {
	if !ascii.EqualFold(h.line[:h.name], name) {
		return
	}
	if hs.seen&mark == 0 && len(h.value()) > 0 {
		h.action = pass
	}
	hs.seen |= mark
}

// connection interprets a Connection header as nginx does, which searches for the words anywhere in the value. The
// headers that Connection may name do not pass in any case.
func (hs *Headers) connection(value []byte) {
	switch {
	case ascii.ContainsFold(value, "close"):
		hs.last = true
	case ascii.ContainsFold(value, "keep-alive"):
		hs.last = false
	}
}

// isTraceParent reports whether v is a valid traceparent (W3C Trace Context): version, trace, span and flags in
// lower-case hexadecimal digits. Version ff, and a trace or span of zeros, are invalid.
func isTraceParent(v []byte) bool {
	const form = "00-00000000000000000000000000000000-0000000000000000-00"
	if len(v) != len(form) || string(v[:2]) == "ff" || isZeros(v[3:35]) || isZeros(v[36:52]) {
		return false
	}
	for i, c := range v {
		if form[i] == '-' && c != '-' || form[i] == '0' && !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

func isZeros(digits []byte) bool { return len(bytes.Trim(digits, "0")) == 0 }

// Token returns the token of the request, without its scheme: the Bearer token of Authorization, or the header
// "token" if there is no Authorization. It is empty if there is none. It is valid until the request ends.
func (hs *Headers) Token() []byte {
	const scheme = "bearer "
	switch {
	case !hs.authorized:
		return hs.token
	case ascii.HasPrefixFold(hs.authorization, scheme):
		return bytes.TrimLeft(hs.authorization[len(scheme):], " ")
	}
	return nil
}

// Forwarded returns the values of X-Forwarded-For, joined with commas.
func (hs *Headers) Forwarded() []byte { return hs.forwarded }

// Close reports whether the client requests that the connection is closed after the response.
func (hs *Headers) Close() bool { return hs.last }
