package main

import (
	"testing"
	"time"

	"sluice/client"
)

func TestOutcomeOfADeadOrder(t *testing.T) {
	for want, s := range map[string]client.Settled{
		"is back on the queue":                            {Key: "1", Status: "queued"},
		"is cancelled; its unit is on sale again":         {Key: "1", Status: "cancelled", GivenBack: true},
		"is cancelled; it held no unit":                   {Key: "1", Status: "cancelled"},
		"is dropped; its unit is on sale again":           {Key: "1", Status: "dropped", GivenBack: true},
		"is dropped; it held no unit":                     {Key: "1", Status: "dropped"},
		"is dropped":                                      {Key: "raw:1", Status: "dropped"},
		"is paid and stays; only its dead letter is gone": {Key: "1", Status: "paid"},
	} {
		if got := became(s); got != want {
			t.Errorf("%+v %s, want %s", s, got, want)
		}
	}
}

func TestSinceIsATimeOrADurationAgo(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h": now.Add(-2 * time.Hour), "2026-11-27T10:00:00Z": now.Add(-2 * time.Hour),
	} {
		if at, err := parseSince(text, now); err != nil || !at.Equal(want) {
			t.Errorf("%s: %s, %v, want %s", text, at, err, want)
		}
	}
}
