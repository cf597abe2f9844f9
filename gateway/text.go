package gateway

import "unsafe"

// asString is b as a string without a copy: only for as long as b does not change.
func asString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// foldedEqual compares without regard to the case of ASCII letters; name is in lower case.
func foldedEqual(s []byte, name string) bool { return len(s) == len(name) && hasFoldedPrefix(s, name) }
