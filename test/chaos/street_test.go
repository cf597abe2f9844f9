package chaos

import (
	"net"
	"net/http"
)

// fromStreet returns a client with an address of the street; "" is the street's first one. It opens a connection for
// each request, as buyers do that come once.
func fromStreet(ip string) *http.Client {
	dialer := &net.Dialer{}
	if ip != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(ip)}
	}
	return &http.Client{
		Transport:     &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
