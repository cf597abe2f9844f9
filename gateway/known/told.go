package known

import (
	"bytes"
	"strconv"
	"time"
)

// State is why a whole sale refuses.
type State string

// The states of a sale that an edge may repeat.
const (
	SoldOut   State = "sold_out"
	Scheduled State = "scheduled"
	Paused    State = "paused"
	Closed    State = "closed"
)

// States are all of them.
var States = [...]State{SoldOut, Scheduled, Paused, Closed}

// MostTTL bounds how long any refusal is repeated, whatever a backend says.
const MostTTL = time.Second

// Told is what a backend said of a sale in the header Sluice-Sale.
type Told struct {
	State   State
	Version int64         // of the sale's definition
	TTL     time.Duration // MostTTL at most
	Holders int64         // how many orders were ever accepted at that moment
	Opens   int64         // ms since 1970; with Scheduled only
}

// ReadTold reads the value of Sluice-Sale: "<id>;state=sold_out;version=7;ttl=1000;holders=12", and ";opens=<unix ms>" with scheduled. It is not ok
// unless all of it can be read, is there once, and is about the sale. Fields it does not know are passed over.
func ReadTold(value, sale []byte) (t Told, ok bool) {
	fields, ok := about(value, sale)
	if !ok {
		return Told{}, false
	}
	var seen struct{ state, version, ttl, holders, opens bool }
	for len(fields) > 0 {
		var name, text []byte
		if name, text, fields, ok = next(fields); !ok {
			return Told{}, false
		}
		switch string(name) {
		case "state":
			t.State, ok = stateOf(text)
			ok = ok && once(&seen.state)
		case "version":
			t.Version, ok = number(text)
			ok = ok && once(&seen.version)
		case "ttl":
			var ms int64
			ms, ok = number(text)
			t.TTL = time.Duration(min(ms, MostTTL.Milliseconds())) * time.Millisecond
			ok = ok && ms > 0 && once(&seen.ttl)
		case "holders":
			t.Holders, ok = number(text)
			ok = ok && once(&seen.holders)
		case "opens":
			t.Opens, ok = number(text)
			ok = ok && once(&seen.opens)
		}
		if !ok {
			return Told{}, false
		}
	}
	complete := seen.state && seen.version && seen.ttl && seen.holders && (seen.opens || t.State != Scheduled)
	return t, complete
}

// readHolders reads the value of Sluice-Holders: "<id>;accepted=<serial>;count=<n>".
func readHolders(value, sale string) (accepted, count int64, ok bool) {
	fields, ok := about([]byte(value), []byte(sale))
	if !ok {
		return 0, 0, false
	}
	var seenAccepted, seenCount bool
	for len(fields) > 0 {
		var name, text []byte
		if name, text, fields, ok = next(fields); !ok {
			return 0, 0, false
		}
		switch string(name) {
		case "accepted":
			accepted, ok = number(text)
			ok = ok && once(&seenAccepted)
		case "count":
			count, ok = number(text)
			ok = ok && once(&seenCount)
		}
		if !ok {
			return 0, 0, false
		}
	}
	return accepted, count, seenAccepted && seenCount
}

// about returns what follows the sale's id and its semicolon.
func about(value, sale []byte) (fields []byte, ok bool) {
	id, fields, _ := bytes.Cut(value, []byte{';'})
	return fields, validID(sale) && bytes.Equal(id, sale)
}

// next takes the first "name=text" off fields.
func next(fields []byte) (name, text, rest []byte, ok bool) {
	field, rest, more := bytes.Cut(fields, []byte{';'})
	name, text, ok = bytes.Cut(field, []byte{'='})
	return name, text, rest, ok && len(name) > 0 && len(text) > 0 && more == (len(rest) > 0)
}

func once(seen *bool) bool {
	first := !*seen
	*seen = true
	return first
}

func stateOf(text []byte) (State, bool) {
	for _, s := range States {
		if string(text) == string(s) {
			return s, true
		}
	}
	return "", false
}

// number reads up to 18 digits: no more fit an int64 for certain.
func number(text []byte) (int64, bool) {
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

// validID says whether a backend could have a sale of this name. Such a name needs no escaping in a URL.
func validID(id []byte) bool {
	const most = 64
	if len(id) == 0 || len(id) > most {
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
