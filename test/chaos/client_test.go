package chaos

import (
	"net"
	"net/http"
)

// clientFrom returns a client with an address of the buyers' network; "" is the first one. It opens a connection for
// each request, like buyers that send a single one.
func clientFrom(ip string) *http.Client {
	dialer := &net.Dialer{}
	if ip != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(ip)}
	}
	return &http.Client{
		Transport:     &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
