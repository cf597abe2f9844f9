package main

import (
	"github.com/spf13/pflag"

	"sluice/nginx"
)

// clientFlags adds the flags about clients that both edges share. spoken are the protocols that a certificate enables.
func clientFlags(f *pflag.FlagSet, perClient *int, proxyProtocol *bool, cert, key *string, spoken string) {
	f.IntVar(perClient, "per-client", nginx.DefaultPerClient, "maximum concurrent requests of one client")
	f.BoolVar(
		proxyProtocol,
		"proxy-protocol",
		false,
		"every connection begins with a PROXY header (v1 or v2), used if it comes from the policy's trusted_proxies",
	)
	f.StringVar(cert, "tls-cert", "", "certificate with its chain, PEM: speak "+spoken)
	f.StringVar(key, "tls-key", "", "its key, PEM")
}

func (m *problems) checkPerClient(n int) {
	if n < 1 || n > 65535 {
		m.add("--per-client must be between 1 and 65535")
	}
}

func (m *problems) checkTLS(cert, key string) {
	if (cert == "") != (key == "") {
		m.add("--tls-cert and --tls-key go together")
	}
}
