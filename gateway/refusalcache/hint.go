package refusalcache

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
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
func ParseSaleHint(value, sale []byte) (SaleHint, bool) {
	fields, ok := parseFields(value, sale, "state", "version", "ttl", "holders", "opens")
	if !ok {
		return SaleHint{}, false
	}
	state := State(fields[0])
	version, hasVersion := parseNumber(fields[1])
	ttl, hasTTL := parseNumber(fields[2])
	holders, hasHolders := parseNumber(fields[3])
	opens, hasOpens := parseNumber(fields[4])
	needsOpens := fields[4] != "" || state == Scheduled
	if !slices.Contains(States[:], state) || !hasVersion || !hasTTL || ttl == 0 || !hasHolders || needsOpens && !hasOpens {
		return SaleHint{}, false
	}
	ttl = min(ttl, maxTTL.Milliseconds())
	return SaleHint{State: state, Version: version, TTL: time.Duration(ttl) * time.Millisecond, Holders: holders,
		Opens: opens}, true
}

// parseHolders parses the value of Sluice-Holders: "<id>;accepted=<serial>;count=<entries>".
func parseHolders(value, sale string) (accepted, count int64, ok bool) {
	fields, ok := parseFields([]byte(value), []byte(sale), "accepted", "count")
	if !ok {
		return 0, 0, false
	}
	accepted, hasAccepted := parseNumber(fields[0])
	count, hasCount := parseNumber(fields[1])
	return accepted, count, hasAccepted && hasCount
}

// parseFields parses "<id>;name=text;..." and returns the texts of the given names, "" for missing ones. It reports
// false if the id is not sale, sale is not a valid id, a field is malformed, or one of names is repeated.
func parseFields(value, sale []byte, names ...string) (texts []string, ok bool) {
	id, rest, _ := bytes.Cut(value, []byte{';'})
	if !validID(sale) || !bytes.Equal(id, sale) {
		return nil, false
	}
	texts = make([]string, len(names))
	for len(rest) > 0 {
		field, next, more := bytes.Cut(rest, []byte{';'})
		name, text, _ := bytes.Cut(field, []byte{'='})
		if len(name) == 0 || len(text) == 0 || more != (len(next) > 0) {
			return nil, false
		}
		if i := slices.Index(names, string(name)); i >= 0 {
			if texts[i] != "" {
				return nil, false
			}
			texts[i] = string(text)
		}
		rest = next
	}
	return texts, true
}

// parseNumber parses up to 18 digits, which always fit an int64.
func parseNumber(text string) (int64, bool) {
	if len(text) > 18 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
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
