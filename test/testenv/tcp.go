package testenv

import (
	"io"
	"net"
)

// Listen returns a listener on a free port, which is closed when the test ends.
func Listen(t TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// ServeTCP passes each connection to serve until the test ends, and closes it when serve returns. It returns the
// address of the server.
func ServeTCP(t TB, serve func(net.Conn)) (address string) {
	t.Helper()
	ln := Listen(t)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return ln.Addr().String()
}

// ProxyTCP connects each client to the server at an address until the test ends, and returns the address of the proxy.
// answers copies what the server sends. Both connections are closed when answers returns or one of them ends.
func ProxyTCP(t TB, to string, answers func(client, server net.Conn)) (address string) {
	t.Helper()
	return ServeTCP(t, func(client net.Conn) {
		server, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer server.Close()
		go func() {
			defer client.Close()
			answers(client, server)
		}()
		_, _ = io.Copy(server, client)
	})
}
