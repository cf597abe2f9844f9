package proxy

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"sluice/gateway/internal/ascii"
)

var http11 = []byte("HTTP/1.1")

// filter removes the headers that concern only the connection between backend and edge: hop-by-hop headers, those
// named by Connection, and Sluice-*, of which it keeps Sluice-Sale in r.SaleHint.
func (r *Request) filter(h *fasthttp.ResponseHeader) {
	h.ResetConnectionClose()
	h.SetProtocol(http11)
	r.dropped, r.SaleHint = r.dropped[:0], r.SaleHint[:0]
	twice := false
	for name, value := range h.All() {
		switch {
		case ascii.EqualFold(name, "connection"):
			for option := range bytes.SplitSeq(value, []byte{','}) {
				option = bytes.Trim(option, " \t")
				if len(option) > 0 && !ascii.EqualFold(option, "close") && !ascii.EqualFold(option, "keep-alive") {
					r.dropped = append(append(r.dropped, option...), '\n')
				}
			}
		case ascii.EqualFold(name, "sluice-sale"):
			twice = len(r.SaleHint) > 0
			r.SaleHint = append(r.SaleHint, value...)
		case ascii.HasPrefixFold(name, "sluice-"), ascii.HasPrefixFold(name, "x-accel-"), isHopByHop(name):
		default:
			continue
		}
		r.dropped = append(append(r.dropped, name...), '\n')
	}
	if twice {
		r.SaleHint = r.SaleHint[:0]
	}
	for rest := r.dropped; len(rest) > 0; {
		var name []byte
		name, rest, _ = bytes.Cut(rest, []byte{'\n'})
		removeFold(h, name)
	}
}

func isHopByHop(name []byte) bool {
	var lower [len("proxy-authenticate")]byte
	if len(name) > len(lower) {
		return false
	}
	switch string(ascii.AppendLower(lower[:0], name)) {
	case "te", "trailer", "upgrade", "keep-alive", "proxy-connection", "transfer-encoding", "proxy-authenticate":
		return true
	case "date": // fasthttp adds its own Date unless there is one with this exact spelling
		return string(name) != "Date"
	}
	return false
}

// removeFold removes all spellings of a header. The response keeps names as the backend wrote them.
func removeFold(h *fasthttp.ResponseHeader, name []byte) {
	var spelled []string
	for k := range h.All() {
		if bytes.EqualFold(k, name) {
			spelled = append(spelled, string(k))
		}
	}
	for _, k := range spelled {
		h.Del(k)
	}
}

// Bodyless reports whether a response with this status has no body.
func Bodyless(status int) bool {
	return status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified
}
