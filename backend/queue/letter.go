package queue

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"sluice/backend/redis/keyspace"
)

// rawPrefix begins the keys of texts that are no messages.
const rawPrefix = "raw:"

// letterJSON is how the scripts write a dead letter. Numbers are strings, because Lua writes large ones as floats.
type letterJSON struct {
	State   string `json:"state"` // dead or cancelling
	Message string `json:"message"`
	Raw     []byte `json:"raw"` // instead of a message
	Reason  string `json:"reason"`
	History string `json:"history"` // lines of: ms, tab, reason
	Crashes string `json:"crashes"`
	Died    string `json:"died"` // ms
	Unit    string `json:"unit"` // none: see DeadLetter.Unbacked; empty: one
}

// decodeLetter never fails: what cannot be read is shown as it is, because a letter that nobody can see is a lost order.
func decodeLetter(key, text string) DeadLetter {
	var j letterJSON
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return DeadLetter{Key: key, Raw: []byte(text), Reason: "this dead letter cannot be read: " + err.Error()}
	}
	d := DeadLetter{
		Key: key, Raw: j.Raw, Reason: j.Reason, History: decodeHistory(j.History),
		DiedAt: decodeMillis(j.Died), Cancelling: j.State == "cancelling", Unbacked: j.Unit == "none",
	}
	d.Crashes, _ = strconv.Atoi(j.Crashes)
	m, err := keyspace.DecodeMessage(j.Message)
	if err == nil {
		d.Message = m
	} else if d.Raw == nil {
		d.Raw = []byte(j.Message)
	}
	return d
}

func decodeHistory(lines string) []Attempt {
	var history []Attempt
	for line := range strings.Lines(lines) {
		ms, reason, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		history = append(history, Attempt{At: decodeMillis(ms), Reason: reason})
	}
	return history
}

func decodeMillis(s string) time.Time {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
