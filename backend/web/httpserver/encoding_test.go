package httpserver

import "testing"

func TestGzipIsSentOnlyToClientsThatAcceptIt(t *testing.T) {
	for header, want := range map[string]bool{
		"gzip": true, "gzip, br": true, "br;q=1, GZIP": true, "br,\tgzip ;q=0.01": true, "gzip;q=1.0, br": true,
		"": false, "identity": false, "gzip;q=0": false, "gzip;q=0, br": false, "br, gzip ; q=0.000": false,
		"x-gzip, gzips": false, "gzip;Q=0": false, "*": false,
	} {
		if got := acceptsGzip(header); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}
