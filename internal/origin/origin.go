// Package origin checks web origins in settings (RFC 6454), such as https://shop.example. A checked origin contains no
// character that terminates a value in a header or in the configuration of nginx.
package origin

import (
	"fmt"
	"regexp"
	"strings"
)

var form = regexp.MustCompile(`^https?://[a-z0-9-]+(\.[a-z0-9-]+)*(:[1-9][0-9]{0,4})?$`)

// Check returns an error unless raw is an origin as browsers send it: a scheme and a host in lower case, with the port
// unless it is the default one, and nothing else.
func Check(raw string) error {
	if !form.MatchString(raw) {
		return fmt.Errorf("%q is not an origin: write a scheme and a host in lower case, such as https://shop.example or "+
			"http://localhost:3000", raw)
	}
	scheme, rest, _ := strings.Cut(raw, "://")
	if port := map[string]string{"http": ":80", "https": ":443"}[scheme]; strings.HasSuffix(rest, port) {
		return fmt.Errorf("%q names the default port, which browsers leave out: write %s", raw, strings.TrimSuffix(raw, port))
	}
	return nil
}
