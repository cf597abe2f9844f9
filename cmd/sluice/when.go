package main

import (
	"fmt"
	"time"
)

// isDuration reports whether parseWhen reads a text as a duration from now.
func isDuration(s string) bool {
	_, err := time.ParseDuration(s)
	return err == nil
}

// parseWhen reads a time, or a duration from now.
func parseWhen(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(d).UTC().Truncate(time.Millisecond), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q: want a time such as 2026-12-01T10:00:00Z, or a duration such as 5m", s)
	}
	return t, nil
}

// since declares a time, as parseSince reads it. Without the flag, *to stays nil.
func (f *flagSet) since(to **time.Time, name, help string) {
	var text string
	f.StringVar(&text, name, "", help)
	f.filled(name)
	f.check(func(bad *problems) {
		if text != "" {
			at, err := parseSince(text, time.Now())
			bad.check("--"+name, err)
			*to = &at
		}
	})
}

// parseSince reads a time, or a duration before now.
func parseSince(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		s = (-d).String()
	}
	return parseWhen(s, now)
}
