package edgetrace

import (
	"encoding/binary"
	"net"

	"golang.org/x/sys/unix"
)

// controlSize is more than the size of a control message with a counter.
const controlSize = 64

// reportOverflow makes reads report how many datagrams the kernel has dropped because the buffer was full.
func reportOverflow(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
	})
	if err != nil {
		return err
	}
	return failed
}

// overflow returns the number of dropped datagrams of a control message, modulo 2^32.
func overflow(control []byte) (total uint32, ok bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_RXQ_OVFL && len(m.Data) >= 4 {
			return binary.NativeEndian.Uint32(m.Data), true
		}
	}
	return 0, false
}
