//go:build !linux

package httpserver

import "net"

// peerClosed always returns false. The next write detects the disconnect.
func peerClosed(net.Conn) bool { return false }
