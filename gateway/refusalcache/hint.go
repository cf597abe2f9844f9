package refusalcache

import (
	"bytes"
	"strconv"
	"time"
)

// State is the reason why all purchases of a sale are refused.
type State string

// The states with cacheable refusals.
const (
	SoldOut   State = "sold_out"
	Scheduled State = "scheduled"
	Paused    State = "paused"
	Closed    State = "closed"
)

// States lists all states.
var States = [...]State{SoldOut, Scheduled, Paused, Closed}

// maxTTL is the longest time to live of a record. Longer values from backends are reduced to it.
const maxTTL = time.Second

// SaleHint is the value of the header Sluice-Sale, with which a backend permits caching of a refusal.
type SaleHint struct {
	State   State
	Version int64         // of the sale's definition
	TTL     time.Duration // at most maxTTL
	Holders int64         // orders accepted so far
	Opens   int64         // opening time in Unix milliseconds; only with Scheduled
}

// ParseSaleHint parses "<id>;state=sold_out;version=7;ttl=1000;holders=12". With the state scheduled, ";opens=<unix
// ms>" is required. Unknown fields are ignored. It reports false if a field is missing, repeated or invalid, or the
// id is not sale.
func ParseSaleHint(value, sale []byte) (h SaleHint, ok bool) {
	fields, ok := cutID(value, sale)
	if !ok {
		return SaleHint{}, false
	}
	var seen struct{ state, version, ttl, holders, opens bool }
	for len(fields) > 0 {
		var name, text []byte
		if name, text, fields, ok = cutField(fields); !ok {
			return SaleHint{}, false
		}
		switch string(name) {
		case "state":
			h.State, ok = parseState(text)
			ok = ok && once(&seen.state)
		case "version":
			h.Version, ok = parseNumber(text)
			ok = ok && once(&seen.version)
		case "ttl":
			var ms int64
			ms, ok = parseNumber(text)
			h.TTL = time.Duration(min(ms, maxTTL.Milliseconds())) * time.Millisecond
			ok = ok && ms > 0 && once(&seen.ttl)
		case "holders":
			h.Holders, ok = parseNumber(text)
			ok = ok && once(&seen.holders)
		case "opens":
			h.Opens, ok = parseNumber(text)
			ok = ok && once(&seen.opens)
		}
		if !ok {
			return SaleHint{}, false
		}
	}
	complete := seen.state && seen.version && seen.ttl && seen.holders && (seen.opens || h.State != Scheduled)
	return h, complete
}

// parseHolders parses the value of Sluice-Holders: "<id>;accepted=<serial>;count=<entries>".
func parseHolders(value, sale string) (accepted, count int64, ok bool) {
	fields, ok := cutID([]byte(value), []byte(sale))
	if !ok {
		return 0, 0, false
	}
	var seenAccepted, seenCount bool
	for len(fields) > 0 {
		var name, text []byte
		if name, text, fields, ok = cutField(fields); !ok {
			return 0, 0, false
		}
		switch string(name) {
		case "accepted":
			accepted, ok = parseNumber(text)
			ok = ok && once(&seenAccepted)
		case "count":
			count, ok = parseNumber(text)
			ok = ok && once(&seenCount)
		}
		if !ok {
			return 0, 0, false
		}
	}
	return accepted, count, seenAccepted && seenCount
}

// cutID returns the fields after the id. It reports false if the id is not sale, or sale is not a valid id.
func cutID(value, sale []byte) (fields []byte, ok bool) {
	id, fields, _ := bytes.Cut(value, []byte{';'})
	return fields, validID(sale) && bytes.Equal(id, sale)
}

// cutField splits off the first "name=text".
func cutField(fields []byte) (name, text, rest []byte, ok bool) {
	field, rest, more := bytes.Cut(fields, []byte{';'})
	name, text, ok = bytes.Cut(field, []byte{'='})
	return name, text, rest, ok && len(name) > 0 && len(text) > 0 && more == (len(rest) > 0)
}

// once reports whether it is the first call with seen.
func once(seen *bool) bool {
	first := !*seen
	*seen = true
	return first
}

func parseState(text []byte) (State, bool) {
	for _, s := range States {
		if string(text) == string(s) {
			return s, true
		}
	}
	return "", false
}

// parseNumber parses up to 18 digits, which always fit an int64.
func parseNumber(text []byte) (int64, bool) {
	if len(text) == 0 || len(text) > 18 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}

// validID reports whether id is a valid sale id. Valid ids need no escaping in a URL.
func validID(id []byte) bool {
	const maxLen = 64
	if len(id) == 0 || len(id) > maxLen {
		return false
	}
	for i, c := range id {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !plain && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}
