package gateway

import "bytes"

// header is one line of a request head: where it is, and what becomes of it.
type header struct {
	line []byte // with its CRLF
	name int    // bytes of the name
	fate fate
}

type fate uint8

const (
	pass       fate = iota
	drop            // the connection's own, or the edge's to say
	otherToken      // the other way to send a token: passes where there is no Authorization
)

func (h *header) value() []byte {
	return bytes.Trim(h.line[h.name+1:len(h.line)-2], " \t")
}

// headers are the lines of a head, and what the edge wants to know of them.
type headers struct {
	lines         []header
	forwarded     []byte // X-Forwarded-For, joined with commas
	options       [8][]byte
	numOptions    int
	authorization []byte
	token         []byte
	authorized    bool // there is an Authorization
	tokened       bool // there is a header token
	host          bool
	last          bool // the client wants the connection closed
}

func (hs *headers) reset() {
	*hs = headers{lines: hs.lines[:0], forwarded: hs.forwarded[:0]}
}

// read takes in the lines of a head that a guard has passed. It refuses one with two tokens of a kind, and one that names too many headers in
// Connection: each of them is looked for in all others.
func (hs *headers) read(raw []byte) bool {
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
	if hs.numOptions > 0 {
		hs.dropNamed()
	}
	return true
}

// judge decides what becomes of one line. The names are grouped by length, which tells nearly all others apart at once.
func (hs *headers) judge(h *header) bool {
	name := h.line[:h.name]
	switch len(name) {
	case len("te"):
		h.dropIf(foldedEqual(name, "te"))
	case len("host"):
		hs.host = hs.host || foldedEqual(name, "host")
	case len("token"):
		if foldedEqual(name, "token") {
			if hs.tokened {
				return false
			}
			h.fate, hs.tokened, hs.token = otherToken, true, h.value()
		}
	case len("expect"): // the body has been read
		h.dropIf(foldedEqual(name, "expect"))
	case len("upgrade"):
		h.dropIf(foldedEqual(name, "upgrade") || foldedEqual(name, "trailer"))
	case len("forwarded"), len("connection"):
		if foldedEqual(name, "connection") {
			h.fate = drop
			return hs.connection(h.value())
		}
		h.dropIf(foldedEqual(name, "forwarded") || foldedEqual(name, "keep-alive") || foldedEqual(name, "x-real-ip"))
	case len("x-request-id"):
		h.dropIf(foldedEqual(name, "x-request-id"))
	case len("authorization"):
		if foldedEqual(name, "authorization") {
			if hs.authorized { // which of them another reader would take is anybody's guess
				return false
			}
			hs.authorized, hs.authorization = true, h.value()
		}
	case len("content-length"):
		h.dropIf(foldedEqual(name, "content-length") || foldedEqual(name, "http2-settings"))
	case len("x-forwarded-for"):
		if foldedEqual(name, "x-forwarded-for") {
			if len(hs.forwarded) > 0 {
				hs.forwarded = append(hs.forwarded, ',')
			}
			hs.forwarded = append(hs.forwarded, h.value()...)
		}
	case len("proxy-connection"):
		h.dropIf(foldedEqual(name, "proxy-connection"))
	case len("transfer-encoding"):
		h.dropIf(foldedEqual(name, "transfer-encoding"))
	case len("proxy-authorization"):
		h.dropIf(foldedEqual(name, "proxy-authorization"))
	}
	// The first letter first: most names begin with another one.
	switch name[0] | 0x20 {
	case 's':
		h.dropIf(hasFoldedPrefix(name, "sluice-"))
	case 'x':
		h.dropIf(hasFoldedPrefix(name, "x-forwarded-"))
	}
	return true
}

func (h *header) dropIf(yes bool) {
	if yes {
		h.fate = drop
	}
}

// connection takes in the options of a Connection header: the names of headers that are for this connection only.
func (hs *headers) connection(value []byte) bool {
	for len(value) > 0 {
		var option []byte
		option, value, _ = bytes.Cut(value, []byte{','})
		option = bytes.Trim(option, " \t")
		switch {
		case len(option) == 0, foldedEqual(option, "keep-alive"):
		case foldedEqual(option, "close"):
			hs.last = true
		case hs.numOptions == len(hs.options):
			return false
		default:
			hs.options[hs.numOptions] = option
			hs.numOptions++
		}
	}
	return true
}

func (hs *headers) dropNamed() {
	for i := range hs.lines {
		h := &hs.lines[i]
		for _, option := range hs.options[:hs.numOptions] {
			if name := h.line[:h.name]; bytes.EqualFold(name, option) && !foldedEqual(name, "host") {
				h.fate = drop
			}
		}
	}
}

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
