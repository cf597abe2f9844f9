package gateway

import (
	"bytes"
	"net/netip"
)

// header is one line of a request head: where it is, and what becomes of it.
type header struct {
	line []byte // with its CRLF
	name int    // bytes of the name
	fate fate
}

type fate uint8

const (
	pass       fate = iota
	drop            // stays here
	otherToken      // the other way to send a token: passes where there is no Authorization
)

// value is without the spaces around it. A tab is a part of it, as it is for nginx.
func (h *header) value() []byte {
	return bytes.Trim(h.line[h.name+1:len(h.line)-2], " ")
}

// headers are the lines of a head, and what the edge wants to know of them.
type headers struct {
	lines         []header
	forwarded     []byte // X-Forwarded-For, joined with commas
	hops          int    // lines of it
	authorization []byte
	token         []byte

	authorizations int
	seen           uint32 // of those that pass once, or may be there once
	state          int    // index of the tracestate, or -1
	authorized     bool   // there is an Authorization, and it says something
	tokened        bool   // there is a header token
	traced         bool   // there is a good traceparent
	host           bool
	last           bool // the client wants the connection closed: by its last Connection that says close or keep-alive
}

func (hs *headers) reset() {
	*hs = headers{lines: hs.lines[:0], forwarded: hs.forwarded[:0], state: -1}
}

// read takes in the lines of a head that a guard has passed. It refuses one with two tokens of a kind, two idempotency keys, or two of what
// nginx takes once.
func (hs *headers) read(raw []byte) bool {
	hs.state = -1
	for len(raw) > 2 {
		end := bytes.IndexByte(raw, '\n') + 1
		colon := bytes.IndexByte(raw[:end], ':')
		if colon < 1 || colon+3 > end || raw[end-2] != '\r' {
			return false
		}
		hs.lines = append(hs.lines, header{line: raw[:end:end], name: colon})
		raw = raw[end:]
		if h := &hs.lines[len(hs.lines)-1]; !hs.judge(h) {
			return false
		}
	}
	if hs.state >= 0 && hs.traced && len(hs.lines[hs.state].value()) > 0 {
		hs.lines[hs.state].fate = pass
	}
	return true
}

// judge decides what becomes of one line. Only what is named here passes to a backend, and of several lines of one name the first: that keeps hop-by-hop
// headers, forged addresses and the names that edge and backend use between them from passing, whatever they are called tomorrow. The nginx edge names
// the same (nginx/snippets/proxy.conf). Names are grouped by length, which tells nearly all others apart at once.
func (hs *headers) judge(h *header) bool {
	h.fate = drop
	name := h.line[:h.name]
	switch len(name) {
	case len("host"):
		if foldedEqual(name, "host") && len(h.value()) > 0 {
			if h.value()[0] == '[' && !isBracketed(h.value()) {
				return false
			}
			h.fate, hs.host = pass, true
		}
	case len("if-match"):
		return hs.once(name, "if-match", ifMatchHeader) && hs.once(name, "if-range", ifRangeHeader)
	case len("if-unmodified-since"):
		return hs.once(name, "if-unmodified-since", unmodifiedHeader)
	case len("token"):
		if foldedEqual(name, "token") {
			if hs.tokened { // which of them another reader would take is anybody's guess
				return false
			}
			hs.tokened = true
			if hs.token = h.value(); len(hs.token) > 0 {
				h.fate = otherToken
			}
		} else {
			hs.passFirst(h, "range", rangeHeader)
		}
	case len("accept"):
		hs.passFirst(h, "accept", acceptHeader)
		hs.passFirst(h, "origin", originHeader)
		return hs.once(name, "expect", expectHeader)
	case len("connection"):
		if foldedEqual(name, "connection") {
			hs.connection(h.value())
		}
		hs.passFirst(h, "user-agent", agentHeader)
		hs.passFirst(h, "webhook-id", webhookIDHeader)
		if foldedEqual(name, "tracestate") && hs.state < 0 {
			hs.state = len(hs.lines) - 1 // passes if its traceparent does
		}
	case len("traceparent"):
		if hs.passFirst(h, "traceparent", parentHeader); h.fate == pass {
			hs.traced = isTraceParent(h.value())
			h.dropIf(!hs.traced)
		}
	case len("content-type"):
		hs.passFirst(h, "content-type", typeHeader)
	case len("authorization"):
		if foldedEqual(name, "authorization") {
			if hs.authorizations++; hs.authorizations > 1 {
				return false
			}
			if hs.authorization = h.value(); len(hs.authorization) > 0 {
				h.fate, hs.authorized = pass, true
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
		case foldedEqual(name, "idempotency-key"):
			if hs.seen&keyHeader != 0 {
				return false
			}
			h.fate = pass
			hs.seen |= keyHeader
			if len(h.value()) == 0 {
				h.line = emptyKey
			}
		case foldedEqual(name, "x-forwarded-for"):
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

// once says whether a line of another name, or the first of this one, is at hand. nginx refuses two of a kind.
func (hs *headers) once(name []byte, of string, mark uint32) bool {
	if !foldedEqual(name, of) {
		return true
	}
	first := hs.seen&mark == 0
	hs.seen |= mark
	return first
}

// Headers of which one passes, or one may be there.
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

// emptyKey is what the nginx edge, which cannot pass on a header without a value, makes of one: the backend answers both alike.
var emptyKey = []byte("Idempotency-Key: \"\"\r\n")

// isBracketed tells an IPv6 address in brackets, and perhaps a port, from other things that have only the letters of one.
func isBracketed(host []byte) bool {
	inside, _, found := bytes.Cut(host[1:], []byte{']'})
	a, err := netip.ParseAddr(asString(inside))
	return found && err == nil && a.Is6() && a.Zone() == ""
}

// passFirst lets a line of this name pass if it is the first and says something.
func (hs *headers) passFirst(h *header, name string, mark uint32) {
	if !foldedEqual(h.line[:h.name], name) {
		return
	}
	if hs.seen&mark == 0 && len(h.value()) > 0 {
		h.fate = pass
	}
	hs.seen |= mark
}

func (h *header) dropIf(yes bool) {
	if yes {
		h.fate = drop
	}
}

// connection takes in a Connection header as nginx does, which looks for the words anywhere in it. What else it may name does not pass anyway.
func (hs *headers) connection(value []byte) {
	switch {
	case containsFolded(value, "close"):
		hs.last = true
	case containsFolded(value, "keep-alive"):
		hs.last = false
	}
}

func containsFolded(s []byte, word string) bool {
	for ; len(s) >= len(word); s = s[1:] {
		if hasFoldedPrefix(s, word) {
			return true
		}
	}
	return false
}

// isTraceParent tells a well-formed parent of a trace (W3C Trace Context): version, trace, span and flags in small hexadecimal digits, none of the
// first three void.
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

// raw is the token that the request is judged by, or nothing: a Bearer token in Authorization, or else, where there is no Authorization, the
// header token.
func (hs *headers) raw() []byte {
	const scheme = "bearer "
	switch {
	case !hs.authorized:
		return hs.token
	case hasFoldedPrefix(hs.authorization, scheme):
		return bytes.TrimLeft(hs.authorization[len(scheme):], " ")
	}
	return nil
}
