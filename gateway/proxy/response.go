package proxy

import (
	"bytes"
	"slices"

	"github.com/valyala/fasthttp"

	"sluice/gateway/internal/ascii"
)

var http11 = []byte("HTTP/1.1")

// filter removes the headers that concern only the connection between backend and edge: hop-by-hop headers, those
// named by Connection, and Sluice-*, of which it keeps Sluice-Sale in r.SaleHint.
func (r *Request) filter(h *fasthttp.ResponseHeader) {
	h.ResetConnectionClose()
	h.SetProtocol(http11)
	r.SaleHint = r.SaleHint[:0]
	var named [][]byte // by Connection
	for name, value := range h.All() {
		if ascii.EqualFold(name, "connection") {
			named = append(named, bytes.FieldsFunc(value, isSeparator)...)
		}
	}
	var dropped []string // as the backend wrote them
	hints := 0
	for name, value := range h.All() {
		switch {
		case ascii.EqualFold(name, "sluice-sale"):
			hints++
			r.SaleHint = append(r.SaleHint, value...)
		case ascii.EqualFold(name, "connection"), ascii.HasPrefixFold(name, "sluice-"),
			ascii.HasPrefixFold(name, "x-accel-"), isHopByHop(name),
			slices.ContainsFunc(named, func(n []byte) bool { return bytes.EqualFold(n, name) }):
		default:
			continue
		}
		dropped = append(dropped, string(name))
	}
	if hints > 1 {
		r.SaleHint = r.SaleHint[:0]
	}
	for _, name := range dropped {
		h.Del(name)
	}
}

func isSeparator(c rune) bool { return c == ',' || c == ' ' || c == '\t' }

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

// Bodyless reports whether a response with this status has no body.
func Bodyless(status int) bool {
	return status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified
}
