// Package ascii handles ASCII text, most of it without allocations.
package ascii

import "unsafe"

// String returns b as a string without a copy. The string is valid only until b changes.
func String(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Lower returns the lower-case form of an ASCII letter, and any other byte unchanged.
func Lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// AppendLower appends s in lower case to dst.
func AppendLower(dst, s []byte) []byte {
	for _, c := range s {
		dst = append(dst, Lower(c))
	}
	return dst
}

// EqualFold reports whether s equals lower, which must be in lower case, without regard to case.
func EqualFold(s []byte, lower string) bool { return len(s) == len(lower) && HasPrefixFold(s, lower) }

// HasPrefixFold reports whether s begins with lower, which must be in lower case, without regard to case.
func HasPrefixFold(s []byte, lower string) bool {
	if len(s) < len(lower) {
		return false
	}
	for i := range len(lower) {
		if Lower(s[i]) != lower[i] {
			return false
		}
	}
	return true
}

// ContainsFold reports whether s contains lower, which must be in lower case, without regard to case.
func ContainsFold(s []byte, lower string) bool {
	for ; len(s) >= len(lower); s = s[1:] {
		if HasPrefixFold(s, lower) {
			return true
		}
	}
	return false
}

// HexDigit returns the value of a hexadecimal digit, or 255 for any other byte.
func HexDigit(c byte) byte {
	switch c = Lower(c); {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// ReplaceControls returns s with each control character replaced. Other bytes stay, also those that are not UTF-8.
func ReplaceControls(s string, by byte) string {
	b := []byte(s)
	for i, c := range b {
		if c < ' ' || c == 0x7f {
			b[i] = by
		}
	}
	return string(b)
}
