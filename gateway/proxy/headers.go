package proxy

import (
	"bytes"
	"net/netip"
	"strings"

	"sluice/gateway/internal/ascii"
)

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
	Forwarded []byte // X-Forwarded-For, joined with commas
	Accept    []byte // valid until the request ends
	Origin    []byte // of the page that sent the request; valid until the request ends
	Preflight []byte // Access-Control-Request-Method
	Chunked   bool   // the body is chunked; the connection must be closed, because what follows is not validated
	Close     bool   // the connection must be closed after the response

	lines         []header
	authorization []byte
	token         []byte

	parent     int  // index of the traceparent line, or -1
	state      int  // index of the tracestate line, or -1
	authorized bool // Authorization is present and not empty
	host       bool
}

func (hs *Headers) reset() {
	*hs = Headers{lines: hs.lines[:0], Forwarded: hs.Forwarded[:0], parent: -1, state: -1}
}

// read parses the header lines of a validated head. http11 is false for HTTP/1.0. It returns false if a header occurs
// twice that must not: tokens of one kind, the idempotency key, and those that nginx accepts once.
func (hs *Headers) read(raw []byte, http11 bool) bool {
	hs.parent, hs.state, hs.Close = -1, -1, !http11
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
	hs.Close = hs.Close || hs.Chunked
	if hs.state >= 0 && hs.parent >= 0 && len(hs.lines[hs.state].value()) > 0 {
		hs.lines[hs.state].action = pass
	}
	return true
}

// classify sets the action of the last line. Only the headers listed here pass to a backend, and only the first line of
// a repeated one. Hop-by-hop headers, forged addresses and the headers that edges and backends exchange are not listed.
// The same applies to headers that are introduced later. The nginx edge has the same list (nginx/snippets/proxy.conf).
// classify returns false if the request must be rejected.
func (hs *Headers) classify(h *header) bool {
	h.action = drop
	var lower [len("access-control-request-headers")]byte
	if h.name > len(lower) {
		return true
	}
	switch string(ascii.AppendLower(lower[:0], h.line[:h.name])) {
	case "host":
		if host := h.value(); len(host) > 0 {
			h.action, hs.host = pass, true
			return host[0] != '[' || isBracketed(host)
		}
	case "authorization":
		if hs.authorization = h.value(); len(hs.authorization) > 0 {
			h.action, hs.authorized = pass, true
		}
		return hs.isFirst(h) // parsers disagree about which of two applies
	case "token":
		if hs.token = h.value(); len(hs.token) > 0 {
			h.action = passIfAlone
		}
		return hs.isFirst(h)
	case "idempotency-key":
		if h.action = pass; !hs.isFirst(h) {
			return false
		}
		if len(h.value()) == 0 {
			h.line = emptyKey
		}
	case "expect", "if-match", "if-range", "if-unmodified-since", "content-range": // nginx rejects a second one
		return hs.isFirst(h)
	case "if-none-match", "if-modified-since":
		if len(h.value()) > 0 {
			h.action = pass
		}
		return hs.isFirst(h)
	case "x-forwarded-for":
		if !hs.isFirst(h) {
			hs.Forwarded = append(hs.Forwarded, ", "...)
		}
		hs.Forwarded = append(hs.Forwarded, h.value()...)
	case "transfer-encoding":
		hs.Chunked = true // a validated head has no other value
	case "connection":
		hs.connection(h.value())
	case "traceparent":
		if hs.isFirst(h) && isTraceParent(h.value()) {
			h.action, hs.parent = pass, len(hs.lines)-1
		}
	case "tracestate":
		if hs.state < 0 {
			hs.state = len(hs.lines) - 1 // passes together with its traceparent
		}
	case "origin":
		if len(h.value()) > 0 && hs.isFirst(h) {
			h.action, hs.Origin = pass, h.value()
		}
	case "access-control-request-method":
		if len(h.value()) > 0 && hs.isFirst(h) {
			h.action, hs.Preflight = pass, h.value()
		}
	case "accept":
		if len(h.value()) > 0 && hs.isFirst(h) {
			h.action, hs.Accept = pass, h.value()
		}
	case "accept-encoding", "accept-language", "content-type", "last-event-id", "range", "user-agent",
		"webhook-id", "webhook-signature", "webhook-timestamp", "access-control-request-headers":
		if len(h.value()) > 0 && hs.isFirst(h) {
			h.action = pass
		}
	}
	return true
}

// isFirst reports whether no line before the last one, h, has its name.
func (hs *Headers) isFirst(h *header) bool {
	name := ascii.String(h.line[:h.name])
	for i := range hs.lines[:len(hs.lines)-1] {
		other := &hs.lines[i]
		if other.name == h.name && strings.EqualFold(ascii.String(other.line[:other.name]), name) {
			return false
		}
	}
	return true
}

// emptyKey replaces an Idempotency-Key without a value, which the nginx edge cannot pass on. Backends handle both
// alike.
var emptyKey = []byte("Idempotency-Key: \"\"\r\n")

// isBracketed reports whether host is an IPv6 address in brackets, with an optional port.
func isBracketed(host []byte) bool {
	inside, _, found := bytes.Cut(host[1:], []byte{']'})
	a, err := netip.ParseAddr(ascii.String(inside))
	return found && err == nil && a.Is6() && a.Zone() == ""
}

// connection interprets a Connection header as nginx does, which searches for the words anywhere in the value. The
// headers that Connection may name do not pass in any case.
func (hs *Headers) connection(value []byte) {
	switch {
	case ascii.ContainsFold(value, "close"):
		hs.Close = true
	case ascii.ContainsFold(value, "keep-alive"):
		hs.Close = false
	}
}

// TraceParent returns the client's traceparent, or nil if there is none or it is not valid. It is valid until the
// request ends.
func (hs *Headers) TraceParent() []byte {
	if hs.parent < 0 {
		return nil
	}
	return hs.lines[hs.parent].value()
}

// SetTraceParent makes the backend receive a header line instead of the client's traceparent. The line includes its
// CRLF, and must stay unchanged until the request ends. Call it once.
func (hs *Headers) SetTraceParent(line []byte) {
	h := header{line: line, name: len("traceparent"), action: pass}
	if hs.parent < 0 {
		hs.lines = append(hs.lines, h)
	} else {
		hs.lines[hs.parent] = h
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
