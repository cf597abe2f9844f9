package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// heading begins a section of docs/commands.md.
var heading = regexp.MustCompile(`(?m)^## (.*)\n`)

// manPages returns the pages by name, made from the reference of commands: sluice with the common parts, and one page
// for each command with its subcommands.
func manPages(reference, version string, at time.Time) map[string][]byte {
	texts, names := map[string]*strings.Builder{}, []string{}
	starts := heading.FindAllStringSubmatchIndex(reference, -1)
	for i, s := range starts {
		end := len(reference)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		title, body := reference[s[2]:s[3]], strings.TrimSpace(reference[s[1]:end])
		page := "sluice"
		if words := strings.Fields(title); words[0] == "sluice" && len(words) > 1 {
			page = "sluice-" + words[1]
		}
		text := texts[page]
		if text == nil {
			text = &strings.Builder{}
			texts[page], names = text, append(names, page)
			fmt.Fprintf(text, "%% %s 1 %q \"sluice %s\"\n\n# NAME\n\n%s - %s\n\n# DESCRIPTION\n\n",
				strings.ToUpper(page), at.Format(time.DateOnly), version, page, summary(body))
		} else {
			fmt.Fprintf(text, "# %s\n\n", strings.ToUpper(title))
		}
		text.WriteString(definitions(body) + "\n\n")
	}
	pages := map[string][]byte{}
	for _, name := range names {
		if name == "sluice" {
			texts[name].WriteString("# SEE ALSO\n\n" + seeAlso(names) + "\n")
		} else {
			texts[name].WriteString("# SEE ALSO\n\n**sluice**(1)\n")
		}
		pages[name] = md2man.Render([]byte(texts[name].String()))
	}
	return pages
}

// summary returns the first sentence, for the page's NAME.
func summary(body string) string {
	sentence, _, _ := strings.Cut(strings.Join(strings.Fields(body), " "), ". ")
	return strings.ToLower(sentence[:1]) + strings.TrimSuffix(sentence[1:], ".")
}

func seeAlso(names []string) string {
	var list []string
	for _, name := range names {
		if name != "sluice" {
			list = append(list, "**"+name+"**(1)")
		}
	}
	return strings.Join(list, ", ")
}

// row is a line of a table: two or three cells. A pipe in a cell is escaped.
var row = regexp.MustCompile(`(?m)^\| ((?:[^|\\]|\\.)*) \|(?: ((?:[^|\\]|\\.)*) \|)? ((?:[^|\\]|\\.)*) \|$\n?`)

// definitions returns Markdown in which tables are definition lists, as man pages have them.
func definitions(body string) string {
	return row.ReplaceAllStringFunc(body+"\n", func(line string) string {
		cells := row.FindStringSubmatch(line)
		name, value, text := cells[1], strings.TrimSpace(cells[2]), strings.ReplaceAll(cells[3], `\|`, "|")
		switch {
		case strings.HasPrefix(name, "---"), name == "Flag", name == "Variable", name == "Code":
			return ""
		case value != "":
			text += " (default " + value + ")"
		}
		return strings.ReplaceAll(name, `\|`, "|") + "\n:   " + text + "\n\n"
	})
}
