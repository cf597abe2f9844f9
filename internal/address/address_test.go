package address

import "testing"

func TestBackend(t *testing.T) {
	for raw, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", "http://backend:8080": "backend:8080", "http://backend": "backend:80",
		"http://[::1]:80/": "[::1]:80", "[::1]:8080": "[::1]:8080", "[fe80::1%eth0]:80": "[fe80::1%eth0]:80",
		"unix:/run/b.sock": "unix:/run/b.sock", "unix:run/b.sock": "", "unix:/a/../b": "", "unix:/a,b": "", "unix:": "",
		"http://unix:/run/b.sock": "", "": "", "backend": "", ":80": "", "https://backend": "", "http://a/b": "",
		"http://u:p@a": "", "http://a?x": "", "ftp://a": "", "http://": "", "a:b:c": "", "a:http": "", "a:0": "",
		"a:65535": "a:65535", "a:65536": "", "http://a:-1": "", "x;server y:1": "", "a b:1": "", "[fe80::1%e;x]:80": "",
		"[::1%]:80": "", "a%b:80": "",
	} {
		if got, err := Backend(raw); err == nil && got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", raw, got, err, want)
		}
	}
}

func TestSplit(t *testing.T) {
	if host, port, err := Split(":80"); host != "" || port != "80" || err != nil {
		t.Errorf("host %q, port %q, %v", host, port, err)
	}
}
