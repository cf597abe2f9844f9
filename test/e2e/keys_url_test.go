package e2e

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

// lenient limits no buyer of these tests.
const lenient = `return { rules = { { name = "token", key = "token", rate = "1000r/s", burst = 10000 } } }`

// unknownKey returns a token of a key that no provider has.
func unknownKey(kid string) string {
	return tokentest.Segments(`{"alg":"ES256","kid":"`+kid+`"}`, `{"sub":"eve","exp":4102444800}`) + ".AA"
}

// Every process fetches the keys of a provider. A buyer with a token of a key that was just published buys with the
// first request, and buyers can buy while the provider is down. Forged tokens cause a bounded number of fetches.
func TestBuyersOfAnIdentityProvider(t *testing.T) {
	t.Parallel()
	for _, edge := range []string{"edge", "gateway"} {
		t.Run(edge, func(t *testing.T) {
			t.Parallel()
			p := tokentest.NewProvider(token.ES256, "first")
			st := startStack(t, shape{edge: edge, backends: 1, workers: 1, policy: policyFile(t, lenient),
				env: []string{
					"SLUICE_TOKEN_KEYS=" + p.Serve(t), "SLUICE_TOKEN_ISSUER=" + tokentest.Expected.Issuer,
					"SLUICE_TOKEN_AUDIENCE=" + tokentest.Expected.Audience,
				}})
			st.createSale("shoe", 100)
			buyers := 0
			buy := func(when, raw string) {
				t.Helper()
				buyers++
				testenv.Eventually(t, time.Minute, when+" is fetched in time", func() bool {
					begin := time.Now()
					a := do(t, "POST", st.base+"/v1/sales/shoe/orders", raw, "")
					if a.Status == 401 && time.Since(begin) > 2*time.Second { // a process waits no longer for a slow fetch
						return false
					}
					if a.Status != 202 {
						t.Errorf("%s: %d %s", when, a.Status, a.Body)
					}
					return true
				})
			}
			buy("the first key", p.Sign("ann"))
			for _, base := range []string{st.base, st.bases[0]} { // the processes have the secret; issuer and audience are missing
				if a := do(t, "POST", base+"/v1/sales/shoe/orders", st.token("eve"), ""); a.Status != 401 {
					t.Errorf("a token without an issuer: %d %s", a.Status, a.Body)
				}
			}
			early := p.Sign("bob")
			p.Rotate("second")
			buy("a key that was just published", p.Sign("cid"))
			buy("the first key, which is still published", early)
			p.Answer(http.StatusBadGateway)
			p.Rotate("third")
			if a := do(t, "POST", st.base+"/v1/sales/shoe/orders", p.Sign("dan"), ""); a.Status != 401 {
				t.Errorf("a key that no process could fetch: %d %s", a.Status, a.Body)
			}
			p.Remove("third")
			buy("while the provider is down", p.Sign("eli"))
			p.Answer(http.StatusOK)

			start, before := time.Now(), p.Fetches()
			var forgers sync.WaitGroup
			for f := range 4 {
				forgers.Go(func() {
					for i := range 100 {
						forged := unknownKey(strconv.Itoa(f) + "-" + strconv.Itoa(i))
						for _, base := range []string{st.base, st.bases[0]} {
							if a := do(t, "POST", base+"/v1/sales/shoe/orders", forged, ""); a.Status != 401 {
								t.Errorf("a forged token: %d %s", a.Status, a.Body)
							}
						}
					}
				})
			}
			forgers.Wait()
			// Of the edge and of the backend: three, one more every ten seconds, and one for each period of five minutes.
			elapsed := time.Since(start)
			most := 2 * (3 + int(elapsed/(10*time.Second)) + 1 + int(elapsed/(4*time.Minute)) + 1)
			if n := p.Fetches() - before; n > most {
				t.Errorf("800 forged tokens caused %d fetches in %s, want at most %d", n, elapsed, most)
			}
			st.settle("shoe", int64(buyers))
		})
	}
}

// sluice up accepts tokens of a provider in addition to its own, and waits at its start until the provider answers.
func TestUpWaitsForTheKeysOfAProvider(t *testing.T) {
	t.Parallel()
	p := tokentest.NewProvider(token.ES256, "first")
	p.Answer(http.StatusServiceUnavailable)
	data, listen, url := t.TempDir(), addr(t), p.Serve(t)
	up := launch(t, nil, "up", "--listen", listen, "--admin", addr(t), "--data", data, "--token-keys", url)
	testenv.Eventually(t, time.Minute, "the start waits", func() bool {
		return strings.Contains(up.output(), "fetching the token keys fails; retrying") &&
			strings.Contains(up.output(), url+": status 503, want 200")
	})
	p.Answer(http.StatusOK)
	testenv.AwaitOK(t, "http://"+listen+"/readyz")
	own, errOut, code := sluiceRun(t, nil, "token", "--user", "own", "--data", data)
	if code != 0 {
		t.Fatal(errOut)
	}
	for _, raw := range []string{p.Sign("ann"), strings.TrimSpace(own)} {
		if a := do(t, "POST", "http://"+listen+"/v1/sales/demo/orders", raw, ""); a.Status != 202 {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	if code := up.end(syscall.SIGTERM); code != 0 {
		t.Errorf("SIGTERM: exit %d\n%s", code, up.output())
	}
}

// A provider with a certificate of a private authority is trusted by SSL_CERT_FILE or SSL_CERT_DIR only.
func TestProviderWithAPrivateCertificate(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(tokentest.NewProvider(token.ES256, "first"))
	t.Cleanup(server.Close)
	// As Kubernetes mounts the file ca/ca.crt of a ConfigMap.
	mount := t.TempDir()
	directory, path := filepath.Join(mount, "ca"), filepath.Join(mount, "..2026_11_29", "ca", "ca.crt")
	err := errors.Join(
		os.MkdirAll(filepath.Dir(path), 0o700),
		os.Symlink("..2026_11_29", filepath.Join(mount, "..data")),
		os.Symlink("..data/ca", directory))
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(env ...string) (*process, string) {
		listen := addr(t)
		return launch(t, env, "gateway", "--listen", listen, "--upstream", "http://"+addr(t),
			"--token-keys", server.URL+"/jwks.json"), listen
	}
	strange, _ := start()
	testenv.Eventually(t, time.Minute, "the certificate is not trusted", func() bool {
		return strings.Contains(strange.output(), "certificate signed by unknown authority")
	})
	_, listen := start("SSL_CERT_FILE=" + path)
	testenv.AwaitOK(t, "http://"+listen+"/healthz")
}

// A wait for the provider ends with a signal.
func TestStopWhileTheProviderIsDown(t *testing.T) {
	t.Parallel()
	p := tokentest.NewProvider(token.ES256, "first")
	p.Answer(http.StatusServiceUnavailable)
	url := p.Serve(t)
	for _, command := range []string{"edge", "gateway"} {
		gate := launch(t, nil, command, "--listen", addr(t), "--upstream", "http://"+addr(t), "--token-keys", url)
		testenv.Eventually(t, time.Minute, "the start waits", func() bool {
			return strings.Contains(gate.output(), "fetching the token keys fails; retrying")
		})
		if code := gate.end(syscall.SIGTERM); code != 0 {
			t.Errorf("%s: SIGTERM: exit %d\n%s", command, code, gate.output())
		}
	}
}
