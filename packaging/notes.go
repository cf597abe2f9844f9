package main

import (
	"context"
	"regexp"
	"strings"
)

// notes writes the section of this version in the changelog.
func (r Release) notes(context.Context) error {
	text, err := r.read("CHANGELOG.md")
	if err != nil {
		return err
	}
	section, err := changes(string(text), r.Version)
	if err != nil {
		return err
	}
	return r.write("NOTES.md", []byte(section))
}

// changes returns the section of a version in a changelog, under a heading with the version and its date.
func changes(log, version string) (string, error) {
	heading := regexp.MustCompile(`(?m)^## \[` + regexp.QuoteMeta(version) + `\]( - (\d{4}-\d{2}-\d{2}))?$`)
	at := heading.FindStringIndex(log)
	if at == nil {
		return "", usage("CHANGELOG.md has no section ## [%s]: rename [Unreleased] to it first", version)
	}
	section := log[at[1]:]
	if end := regexp.MustCompile(`(?m)^## \[`).FindStringIndex(section); end != nil {
		section = section[:end[0]]
	}
	if strings.TrimSpace(section) == "" {
		return "", usage("CHANGELOG.md has nothing in the section ## [%s]", version)
	}
	title := strings.NewReplacer("## [", "# sluice ", "]", "").Replace(log[at[0]:at[1]])
	return title + "\n\n" + strings.TrimSpace(section) + "\n", nil
}
