//go:build !linux

package edgetrace

import "net"

const controlSize = 0

// reportOverflow does nothing: only Linux counts the datagrams that a socket drops.
func reportOverflow(*net.UDPConn) error { return nil }

func overflow([]byte) (total uint32, ok bool) { return 0, false }
