package chaos

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// logLine is a line of a process's log.
type logLine struct {
	at        time.Time
	who, what string
}

// logTimeline logs what Sentinels and backends logged about Redis since a moment, in order.
func (n *saleRun) logTimeline(t *testing.T, from time.Time) {
	t.Helper()
	var all []logLine
	for i, s := range n.sentinels {
		all = append(all, ofSentinel("the Sentinel of "+redisHosts[i], s.Output())...)
	}
	for i, b := range n.backends {
		all = append(all, ofBackend(backendHosts[i], b.Output())...)
	}
	slices.SortStableFunc(all, func(a, b logLine) int { return a.at.Compare(b.at) })
	for _, s := range all {
		if after := s.at.Sub(from); after >= 0 {
			t.Logf("%7.3f s  %s: %s", after.Seconds(), s.who, s.what)
		}
	}
}

// 110:X 21 Nov 2026 22:19:01.259 # +odown master shop 10.77.0.9 6379 #quorum 2/2
var sentinelEvent = regexp.MustCompile(
	`(?m)^\d+:X (\d+ \w+ \d+ [\d:.]+) . ((?:[+-](?:sdown|odown|switch)|\+elected|\+selected|\+promoted|-failover-abort).*)$`,
)

func ofSentinel(who, output string) (all []logLine) {
	for _, m := range sentinelEvent.FindAllStringSubmatch(output, -1) {
		if at, err := time.ParseInLocation("02 Jan 2006 15:04:05.000", m[1], time.Local); err == nil {
			all = append(all, logLine{at, who, m[2]})
		}
	}
	return all
}

// ofBackend omits the lines about single refusals.
func ofBackend(who, output string) (all []logLine) {
	for line := range strings.Lines(output) {
		var entry struct {
			Time          time.Time
			Msg, Why, Err string
		}
		if json.Unmarshal([]byte(line), &entry) == nil && strings.Contains(entry.Msg, "Redis") {
			all = append(all, logLine{entry.Time, who, strings.TrimSpace(entry.Msg + " " + entry.Why + " " + entry.Err)})
		}
	}
	return all
}
