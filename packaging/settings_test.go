package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The units, their settings and the chart use flags and variables that docs/commands.md lists.
func TestSettingsExist(t *testing.T) {
	// SLUICE_REDIS_URL_FILE names the file that has SLUICE_REDIS_URL.
	setting := regexp.MustCompile(`--[a-z][a-z-]+|SLUICE_[A-Z_]+`)
	known := setting.FindAllString(read(t, "../docs/commands.md"), -1)
	found := 0
	for _, pattern := range []string{"debian/units/*", "debian/etc/*.env", "chart/sluice/templates/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			for _, name := range setting.FindAllString(read(t, file), -1) {
				found++
				if !slices.Contains(known, strings.TrimSuffix(name, "_FILE")) {
					t.Errorf("%s has %s, which no command of docs/commands.md has", file, name)
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("found %d settings, want at least 50", found)
	}
}

// read returns the text of a file; path is relative to this directory.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
