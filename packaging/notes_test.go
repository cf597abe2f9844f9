package main

import (
	"strings"
	"testing"
)

func TestNotesAreSectionOfChangelog(t *testing.T) {
	const log = "# Changelog\n\n## [Unreleased]\n\n- later\n\n## [1.2.0] - 2026-11-22\n\n### Added\n\n- a\n\n## [1.1.0]\n\n- b\n\n## [1.0.0]\n\n"
	for version, want := range map[string]string{
		"1.2.0": "# sluice 1.2.0 - 2026-11-22\n\n### Added\n\n- a\n",
		"1.1.0": "# sluice 1.1.0\n\n- b\n",
	} {
		if got, err := changes(log, version); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", version, got, err, want)
		}
	}
	for version, want := range map[string]string{
		"1.3.0": "CHANGELOG.md has no section ## [1.3.0]: rename [Unreleased] to it first",
		"1.0.0": "CHANGELOG.md has nothing in the section ## [1.0.0]",
		"1.2":   "no section", "1.2.0-rc.1": "no section",
	} {
		if _, err := changes(log, version); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", version, err, want)
		}
	}
}
