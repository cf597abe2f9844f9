package main

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// visibleWriter writes text of which a terminal obeys nothing but ends of lines and tabs: other control characters,
// and those that turn the direction of writing, are shown as \u001b is. Titles, names, reasons and lines of logs are
// other people's words. In JSON such an escape means the same character. It keeps nothing between writes, so a
// character must come in one. It is safe for concurrent use if w is.
type visibleWriter struct {
	w      io.Writer
	failed atomic.Pointer[error] // the first error of w
}

func (v *visibleWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(v.w, visible(string(p))); err != nil {
		v.failed.CompareAndSwap(nil, &err)
		return 0, err
	}
	return len(p), nil
}

// visible shows what a terminal would obey; what is no UTF-8 is shown as U+FFFD where there is any of that.
func visible(text string) string {
	if strings.IndexFunc(text, obeyed) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if obeyed(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// obeyed reports whether a terminal interprets a character instead of showing it.
func obeyed(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case r < utf8.RuneSelf:
		return unicode.IsControl(r)
	}
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' ||
		r >= '\u2066' && r <= '\u2069'
}
