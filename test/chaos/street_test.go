package chaos

import (
	"net"
	"net/http"
)

// fromStreet is a client with an address of the street; "" is the street's first one. It makes a connection for each request, as buyers do who come once.
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
