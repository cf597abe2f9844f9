package outbound

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/test/testenv"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func TestCheckURL(t *testing.T) {
	strict, local := New(Config{}), New(Config{AllowPrivate: append(loopback, netip.MustParsePrefix("10.0.0.0/8"))})
	for _, good := range []string{
		"https://shop.example/hook", "https://shop.example:8443/a?b=c%20d", "https://93.184.216.34/",
		"https://[2606:2800:220:1::1]:443/", "https://xn--caf-dma.example",
		"HTTPS://SHOP.example/", "https://shop.example:80/",
	} {
		if err := strict.CheckURL(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, c := range []struct{ url, why string }{
		{"", "https://"}, {"shop.example", "https://"}, {"http://shop.example/", "https://"},
		{"ftp://shop.example/", "https://"}, {"file:///etc/passwd", "https://"},
		{"gopher://127.0.0.1:6379/_x", "https://"}, {"javascript:alert(1)", "https://"}, {"//shop.example/", "https://"},
		{"https:///hook", "host"}, {"https:shop.example", "host"},
		{"https://user:pass@shop.example/", "password"}, {"https://user@shop.example/", "password"},
		{"https://@shop.example/", "password"},
		{"https://shop.example/#x", "fragment"}, {"https://shop.example/#", "fragment"},
		{"https://shop.example/a b", "printable"}, {"https://shop.example/\r\nX: y", "printable"},
		{"https://shop.example\\@127.0.0.1/", "printable"}, {"https://café.example/", "printable"},
		{"https://shop.example:22/", "port"}, {"https://shop.example:25/", "port"}, {"https://shop.example:6379/", "port"},
		{"https://shop.example:0/", "port"},
		{"https://shop.example:65536/", "port"}, {"https://shop.example:/", "port"},
		{"https://shop.example:x/", "not a URL"}, {"https://[::1/", "not a URL"},
		{"https://" + strings.Repeat("a", 2050), "2048"},
		{"https://127.0.0.1/", "address"}, {"https://localhost/", "address"}, {"https://LOCALHOST./", "address"},
		{"https://a.localhost/", "address"}, {"https://0.0.0.0/", "address"},
		{"https://10.1.2.3/", "address"}, {"https://172.31.255.255/", "address"}, {"https://192.168.0.1/", "address"},
		{"https://100.64.0.1/", "address"}, {"https://169.254.169.254/latest", "address"},
		{"https://100.100.100.200/", "address"}, {"https://168.63.129.16/", "address"}, {"https://192.0.0.192/", "address"},
		{"https://198.18.0.1/", "address"},
		{"https://224.0.0.1/", "address"}, {"https://255.255.255.255/", "address"}, {"https://240.0.0.1/", "address"},
		{"https://192.88.99.1/", "address"},
		{"https://[::1]/", "address"}, {"https://[::]/", "address"}, {"https://[fe80::1]/", "address"},
		{"https://[fe80::1%25eth0]/", "address"}, {"https://[fd00:ec2::254]/", "address"},
		{"https://[::ffff:127.0.0.1]/", "address"}, {"https://[::ffff:10.0.0.1]/", "address"},
		{"https://[::127.0.0.1]/", "address"}, {"https://[2002:7f00:1::]/", "address"},
		{"https://[64:ff9b::7f00:1]/", "address"}, {"https://[64:ff9b:1::a00:1]/", "address"},
		{"https://[ff02::1]/", "address"}, {"https://[2001:db8::1]/", "address"}, {"https://[2001::1]/", "address"},
	} {
		err := strict.CheckURL(c.url)
		if err == nil || !strings.Contains(err.Error(), c.why) || strings.ContainsAny(err.Error(), "\n@") ||
			!slices.Contains([]string{"must", "has", "is"}, strings.Fields(err.Error())[0]) {
			t.Errorf("%q: %v; want an error with %q", c.url, err, c.why)
		}
	}
	for u, ok := range map[string]bool{
		"http://127.0.0.1:8080/": true, "https://127.0.0.1/": true, "http://10.0.0.1/": true,
		"http://intern.example/": true, "https://[::1]/": true, "http://localhost/": true,
		"https://192.168.0.1/": false, "http://93.184.216.34/": false, "https://[::ffff:10.0.0.1]/": true,
		"http://169.254.169.254/": false,
	} {
		if err := local.CheckURL(u); (err == nil) != ok {
			t.Errorf("with private networks allowed, %s: %v", u, err)
		}
	}
}

func TestParseNetworks(t *testing.T) {
	got, err := ParseNetworks([]string{"10.0.0.0/8", "fd00::/8", "192.168.1.5", "::1"})
	if want := "[10.0.0.0/8 fd00::/8 192.168.1.5/32 ::1/128]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v; want %s", got, err, want)
	}
	for _, bad := range []string{
		"", "10.0.0.1/8", "10.0.0.0/33", "all", "::ffff:10.0.0.0/104", "fe80::1%eth0", "10.0.0.0-10.0.0.9",
	} {
		if got, err := ParseNetworks([]string{bad}); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
}

// receiver is a server on loopback; hits counts connections.
type receiver struct {
	*httptest.Server
	hits atomic.Int64
}

func newReceiver(t *testing.T, secure bool, h http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{Server: httptest.NewUnstartedServer(h)}
	r.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			r.hits.Add(1)
		}
	}
	r.Config.ErrorLog = nil
	if secure {
		r.StartTLS()
	} else {
		r.Start()
	}
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) config() Config {
	c := Config{AllowPrivate: loopback, Timeout: time.Minute}
	if r.Certificate() != nil {
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AddCert(r.Certificate())
	}
	return c
}

func get(t *testing.T, c *Client, u string) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	resp, err := c.Do(req)
	if err != nil {
		if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hush") {
			t.Errorf("the error is not one line without the URL: %q", err)
		}
		return nil, "", err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body), nil
}

func TestResponseBodyIsLimited(t *testing.T) {
	var sent atomic.Int64
	r := newReceiver(t, true, func(w http.ResponseWriter, req *http.Request) {
		if req.UserAgent() != "sluice" || req.Header.Get("Accept-Encoding") != "" {
			t.Errorf("headers %v", req.Header)
		}
		w.WriteHeader(201)
		piece := make([]byte, 1<<20)
		for range 1 << 10 { // 1 GB
			n, err := w.Write(piece)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	resp, body, err := get(t, New(r.config()), r.URL)
	if err != nil || resp.StatusCode != 201 || len(body) != 64<<10 {
		t.Fatalf("%v, %d bytes, %v", resp, len(body), err)
	}
	r.Close() // waits for the handler
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("read %d bytes", n)
	}
}

func TestPrivateAddressIsRefused(t *testing.T) {
	for _, secure := range []bool{true, false} {
		r := newReceiver(t, secure, func(http.ResponseWriter, *http.Request) { t.Error("unexpected request") })
		cfg := r.config()
		cfg.AllowPrivate = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		for _, u := range []string{
			r.URL, strings.Replace(r.URL, "127.0.0.1", "localhost", 1),
			strings.Replace(r.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1),
		} {
			if _, _, err := get(t, New(cfg), u+"/?token=hush"); !errors.Is(err, ErrRefused) {
				t.Errorf("%s: %v", u, err)
			}
		}
		if n := r.hits.Load(); n != 0 {
			t.Errorf("%d connections", n)
		}
	}
}

// answering returns a resolver that returns the given addresses one after the other and repeats the last one.
func answering(t *testing.T, addresses ...string) *net.Resolver {
	t.Helper()
	var queries atomic.Int64
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			r := bufio.NewReader(far)
			for {
				var size [2]byte // a pipe is not a packet connection, so the resolver uses the TCP format
				if _, err := io.ReadFull(r, size[:]); err != nil {
					return
				}
				query := make([]byte, int(size[0])<<8|int(size[1]))
				if _, err := io.ReadFull(r, query); err != nil {
					return
				}
				end := 12
				for query[end] != 0 {
					end += int(query[end]) + 1
				}
				end += 5
				kind := query[end-3]
				answer := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
				if kind == 1 { // A
					n := int(queries.Add(1)) - 1
					ip := netip.MustParseAddr(addresses[min(n, len(addresses)-1)]).As4()
					answer[7] = 1
					answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
					answer = append(answer, ip[:]...)
				}
				if _, err := far.Write(append([]byte{byte(len(answer) >> 8), byte(len(answer))}, answer...)); err != nil {
					return
				}
			}
		}()
		return near, nil
	}}
}

func TestRebindingToAPrivateAddressIsRefused(t *testing.T) {
	r := newReceiver(t, false, func(http.ResponseWriter, *http.Request) {})
	_, port, _ := net.SplitHostPort(r.Listener.Addr().String())
	resolver := answering(t, "127.0.0.2", "127.0.0.1")
	// The first lookup returns an allowed address: 127.0.0.2, because tests must not connect to public addresses.
	if ips, err := resolver.LookupNetIP(t.Context(), "ip4", "shop.example"); err != nil || ips[0].String() != "127.0.0.2" {
		t.Fatalf("the resolver does not work: %v, %v", ips, err)
	}
	c := New(
		Config{
			AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")},
			Resolver:     resolver,
			Timeout:      time.Minute,
		},
	)
	u := "http://shop.example:" + port + "/"
	if err := c.CheckURL(u); err != nil {
		t.Fatal(err)
	}
	if _, _, err := get(t, c, u); !errors.Is(err, ErrRefused) {
		t.Errorf("%v, want a refusal", err)
	}
	if n := r.hits.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
	if _, _, err := get(t,
		New(Config{AllowPrivate: loopback, Resolver: answering(t, "127.0.0.1"), Timeout: time.Minute}), u); err != nil {
		t.Errorf("an allowed address: %v", err)
	}
}

// Without TLS, only allowed networks are reachable.
func TestPublicAddressIsRefusedForHTTP(t *testing.T) {
	c := New(Config{AllowPrivate: loopback, Resolver: answering(t, "93.184.216.34"), Timeout: 2 * time.Second})
	const u = "http://shop.example:8080/"
	if err := c.CheckURL(u); err != nil {
		t.Fatal(err)
	}
	if _, _, err := get(t, c, u); !errors.Is(err, ErrRefused) {
		t.Errorf("%v, want a refusal", err)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	inner := newReceiver(t, false, func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") })
	r := newReceiver(t, true, func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, inner.URL, http.StatusTemporaryRedirect)
	})
	resp, _, err := get(t, New(r.config()), r.URL)
	if err != nil || resp.StatusCode != 307 {
		t.Errorf("%v, %v", resp, err)
	}
	if n := inner.hits.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	proxy := newReceiver(t, false, func(http.ResponseWriter, *http.Request) { t.Error("the proxy received a request") })
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	c := New(Config{})
	// net/http reads the environment once, and never uses a proxy for loopback addresses
	for _, through := range []*http.Transport{c.tls, c.plain} {
		if through.Proxy != nil {
			t.Error("the transport may use a proxy")
		}
	}
}

// raw handles each connection with a function.
func raw(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	return "http://" + testenv.ServeTCP(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			answer(c)
		}
	})
}

func TestEndlessResponses(t *testing.T) {
	drip := func(c net.Conn, head, again string) {
		_, _ = io.WriteString(c, head)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := io.WriteString(c, again); err != nil {
				return
			}
		}
	}
	for name, answer := range map[string]func(net.Conn){
		"nothing":      func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) },
		"slow headers": func(c net.Conn) { drip(c, "HTTP/1.1 200 OK\r\n", "X: y\r\n") },
		"slow body":    func(c net.Conn) { drip(c, "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", "x") },
		"slow chunks":  func(c net.Conn) { drip(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n") },
		"early hints":  func(c net.Conn) { drip(c, "", "HTTP/1.1 103 Early Hints\r\n\r\n") },
		"other": func(c net.Conn) {
			drip(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "x")
		},
		"endless lines": func(c net.Conn) { drip(c, "HTTP/1.1 200 OK\r\n", "X-"+strings.Repeat("y", 32<<10)+": z\r\n") },
		"no HTTP":       func(c net.Conn) { _, _ = io.WriteString(c, "220 mail.example ESMTP\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{AllowPrivate: loopback, Timeout: 150 * time.Millisecond})
			began := time.Now()
			_, body, err := get(t, c, raw(t, answer))
			if err == nil {
				t.Errorf("unexpected response: %q", body)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestInvalidTLSIsRefused(t *testing.T) {
	r := newReceiver(t, true, func(http.ResponseWriter, *http.Request) { t.Error("unexpected request") })
	stranger := r.config()
	stranger.RootCAs = x509.NewCertPool()
	if _, _, err := get(t, New(stranger), r.URL); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an untrusted certificate: %v", err)
	}
	other := r.config()
	other.Resolver = answering(t, "127.0.0.1")
	_, port, _ := net.SplitHostPort(r.Listener.Addr().String())
	if _, _, err := get(t, New(other), "https://shop.example.org:"+port); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate for another name: %v", err)
	}
	old := httptest.NewUnstartedServer(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("unexpected request") }),
	)
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	old.StartTLS()
	t.Cleanup(old.Close)
	ancient := Config{AllowPrivate: loopback, RootCAs: x509.NewCertPool()}
	ancient.RootCAs.AddCert(old.Certificate())
	if _, _, err := get(t, New(ancient), old.URL); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("TLS 1.1: %v", err)
	}
}

func TestConnectionsPerHostAreLimited(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{}, 10)
	r := newReceiver(t, false, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-release })
	cfg := r.config()
	cfg.PerHost = 2
	c := New(cfg)
	done := make(chan error, 5)
	for range 5 {
		go func() {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, r.URL, nil)
			_, err := c.Do(req)
			done <- err
		}()
	}
	<-arrived
	<-arrived
	select {
	case <-arrived:
		t.Error("a third request is in progress")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	for range 5 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	c.Close()
}
