package htmltemplate

import (
	"fmt"
	"reflect"
	"strings"
)

// builtins are the functions of every template.
var builtins = Funcs{
	"eq":     func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) },
	"index":  func(texts map[string]string, key string) string { return texts[key] },
	"not":    func(v any) bool { return !truth(reflect.ValueOf(v)) },
	"print":  fmt.Sprint,
	"printf": fmt.Sprintf,
}

// safeURL reports whether a URL is relative, http or https. Browsers remove tabs and line ends from URLs.
func safeURL(url string) bool {
	if strings.ContainsFunc(url, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return false
	}
	scheme, _, found := strings.Cut(url, ":")
	if !found || strings.ContainsAny(scheme, "/?#") {
		return true
	}
	scheme = strings.ToLower(scheme)
	return scheme == "http" || scheme == "https"
}
