package documents

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// command is the beginning of inline code that is no message: a command, a statement in SQL or a setting.
	command = regexp.MustCompile(`^(sluice|redis-cli|docker|kubectl|export|grep|make|go|group run|ACL) ` +
		`|^(SELECT|UPDATE|DELETE|CREATE) |=|^[^A-Za-z]`)
	variablePart = regexp.MustCompile(`\.\.\.|\(\.\.\.\)|https?://|[0-9]+`)
	// component is the prefix that sluice health writes before the state of a store.
	component = regexp.MustCompile(`^(redis|database): `)
)

// composed are messages that the program composes of these parts, and messages of nginx.
var composed = map[string][]string{
	"waiting for the database":           {"waiting for ", "the database"},
	"receiving sale notifications fails": {"receiving sale notifications", " fails"},
	"Redis holds the data of deployment": {"Redis holds ", "the data of deployment"},
	"upstream timed out":                 nil,
}

// A message that a document quotes for the search in a log or an output is one that the program writes. Inline code of
// three or more words is a message, unless it begins as a command does.
func TestQuotedMessagesAreInTheProgram(t *testing.T) {
	program := textOfProgram(t)
	docs := readAll(t)
	quoted := 0
	for _, name := range []string{"docs/operations.md", "docs/deploy.md"} {
		for _, span := range docs[name].Spans {
			message := component.ReplaceAllString(span.Value, "")
			if span.Value == message && strings.Count(message, " ") < 2 || command.MatchString(message) {
				continue
			}
			quoted++
			for _, part := range variablePart.Split(message, -1) {
				for _, text := range partsOf(strings.TrimSpace(part)) {
					if !strings.Contains(program, text) {
						t.Errorf("%s:%d: the program does not write %q of %q", name, span.Line, text, span.Value)
					}
				}
			}
		}
	}
	if quoted < 40 {
		t.Errorf("found %d messages, want at least 40", quoted)
	}
}

var stateOfStore = regexp.MustCompile(`return "([^"(]+) \(`)

// Each state of a store in which a backend is not ready has a row in the table of sluice health.
func TestStatesOfStoresAreInOperations(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(root, "internal/assemble/ready.go"))
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	states := stateOfStore.FindAllSubmatch(source, -1)
	for _, state := range states {
		row := regexp.MustCompile("(?m)^\\| `(redis|database): " + regexp.QuoteMeta(string(state[1])))
		if !row.Match(document) {
			t.Errorf("docs/operations.md has no row for %q", state[1])
		}
	}
	if len(states) < 7 {
		t.Errorf("found %d states, want at least 7", len(states))
	}
}

// partsOf returns the texts that a part of a message consists of.
func partsOf(part string) []string {
	for message, parts := range composed {
		if before, after, found := strings.Cut(part, message); found {
			return append([]string{strings.TrimSpace(before), strings.TrimSpace(after)}, parts...)
		}
	}
	return []string{part}
}

// textOfProgram returns the sources of the program, without tests.
func textOfProgram(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"backend", "client", "cmd", "gateway", "internal", "lua", "nginx"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(file string, d fs.DirEntry, err error) error {
			ext := filepath.Ext(file)
			if err != nil || d.IsDir() || ext != ".go" && ext != ".lua" || strings.HasSuffix(file, "_test.go") {
				return err
			}
			text, err := os.ReadFile(file)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
