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
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	commands, err := os.ReadFile(filepath.Join(root, "docs/commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	// SLUICE_REDIS_URL_FILE names the file that has SLUICE_REDIS_URL.
	setting := regexp.MustCompile(`--[a-z][a-z-]+|SLUICE_[A-Z_]+`)
	known := setting.FindAllString(string(commands), -1)
	found := 0
	for _, pattern := range []string{"debian/units/*", "debian/etc/*.env", "chart/sluice/templates/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range setting.FindAllString(string(text), -1) {
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
