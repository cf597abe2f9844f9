package main

import "testing"

func TestDurationsBelowASecondHaveMilliseconds(t *testing.T) {
	for s, want := range map[seconds]string{0: "0s", .003: "3ms", .4567: "456ms", 1.2345: "1.23s", 90: "1m30s"} {
		if got := s.String(); got != want {
			t.Errorf("%v seconds print as %s, want %s", float64(s), got, want)
		}
	}
}
