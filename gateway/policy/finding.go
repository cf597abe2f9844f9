package policy

import (
	"fmt"
	"strings"
)

// Finding is an error or a warning about a policy.
type Finding struct {
	File    string `json:"-"`
	Line    int    `json:"line"` // from 1; 0 if it concerns the whole file
	Message string `json:"detail"`
}

func (f Finding) Error() string {
	if f.Line == 0 {
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// Findings lists all errors, or all warnings, about a policy in the order of the file.
type Findings []Finding

func (all Findings) Error() string {
	lines := make([]string, len(all))
	for i, f := range all {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}
