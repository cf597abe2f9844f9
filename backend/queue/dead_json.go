package queue

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"sluice/backend/redis/keyspace"
)

// rawPrefix is the key prefix of texts that are not messages.
const rawPrefix = "raw:"

// deadLetterJSON is the format in which the scripts store a dead letter. Numbers are strings, because Lua encodes large
// numbers as floats.
type deadLetterJSON struct {
	State   string `json:"state"` // dead or cancelling
	Message string `json:"message"`
	Raw     []byte `json:"raw"` // instead of a message
	Reason  string `json:"reason"`
	History string `json:"history"` // lines of: ms, tab, reason
	Crashes string `json:"crashes"`
	Died    string `json:"died"` // ms
	Unit    string `json:"unit"` // "none": DeadLetter.Unbacked
}

// decodeDeadLetter returns an unreadable text as Raw instead of an error, so that no dead letter is hidden from admins.
func decodeDeadLetter(key, text string) DeadLetter {
	var j deadLetterJSON
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return DeadLetter{Key: key, Raw: []byte(text), Reason: "unreadable dead letter: " + err.Error()}
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
