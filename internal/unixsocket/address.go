package unixsocket

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	scheme = "unix:"

	// maxPath is the capacity of sockaddr_un of Linux in bytes, without the final zero.
	maxPath = 107
)

// plainPath needs no quotes in the configuration of nginx and in lists that commas or spaces separate.
var plainPath = regexp.MustCompile(`^/[A-Za-z0-9/._-]+$`)

// IsAddress reports whether an address has the form of a Unix socket: it begins with "unix:".
func IsAddress(address string) bool { return strings.HasPrefix(address, scheme) }

// Check returns an error unless an address is unix:/path. The path must be absolute, without "..", "//" and a slash at
// its end, of at most 107 bytes, and consist of letters, digits and / . _ -. The error does not repeat the address.
func Check(address string) error {
	path, found := strings.CutPrefix(address, scheme)
	switch {
	case !found || !plainPath.MatchString(path) || filepath.Clean(path) != path:
		return errors.New("want unix:/path, an absolute path of letters, digits and / . _ -, without .. and //")
	case len(path) > maxPath:
		return fmt.Errorf("the path has %d bytes, and the kernel takes at most %d: use a shorter one", len(path), maxPath)
	}
	return nil
}

// Network returns the arguments of net.Dial for unix:/path or host:port.
func Network(address string) (network, to string) {
	if path, found := strings.CutPrefix(address, scheme); found {
		return "unix", path
	}
	return "tcp", address
}
