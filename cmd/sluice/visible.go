package main

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// visibleWriter escapes characters that a terminal would interpret, because titles, names, reasons and lines of logs
// come from other users. These are control characters except line feeds and tabs, and characters that change the
// direction of writing. Escapes have the form \u001b, which in JSON means the same character. A character must not be
// split between two writes. It is safe for concurrent use if w is.
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

// visible escapes the characters that a terminal interprets. In a text with such characters, bytes that are not UTF-8
// are replaced by U+FFFD.
func visible(text string) string {
	if strings.IndexFunc(text, interpreted) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if interpreted(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// interpreted reports whether a terminal interprets a character instead of showing it.
func interpreted(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case r < utf8.RuneSelf:
		return unicode.IsControl(r)
	}
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' ||
		r >= '\u2066' && r <= '\u2069'
}
