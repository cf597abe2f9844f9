package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// signer is a program of docs/examples that signs tokens.
type signer struct {
	language string
	command  []string
	env      []string
}

// signersOf returns the programs whose language and library are installed.
func signersOf(t *testing.T) []signer {
	t.Helper()
	in := func(name string) string { return filepath.Join(root, "docs/examples", name) }
	built := filepath.Join(t.TempDir(), "sign")
	if out, err := exec.Command("go", "build", "-C", root, "-o", built, "./docs/examples/go/sign").
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all := []signer{{language: "go", command: []string{built}}}
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import cryptography, jwt").Run() == nil {
			all = append(all, signer{language: "python", command: []string{python, in("sign.py")}})
			break
		}
	}
	if dir, ok := install(t, "npm", "install", "--no-audit", "--no-fund", "jose@6"); ok {
		text, err := os.ReadFile(in("sign.mjs")) // modules are found beside the program
		if err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(dir, "sign.mjs")
		if err := os.WriteFile(program, text, 0o600); err != nil {
			t.Fatal(err)
		}
		all = append(all, signer{language: "javascript", command: []string{"node", program}})
	}
	if vendor := os.Getenv("COMPOSER_VENDOR_DIR"); vendor != "" {
		all = append(all, signer{"php", []string{"php", in("sign.php")}, []string{"COMPOSER_VENDOR_DIR=" + vendor}})
	} else if dir, ok := install(t, "composer", "require", "--no-interaction", "firebase/php-jwt"); ok {
		vendor := "COMPOSER_VENDOR_DIR=" + filepath.Join(dir, "vendor")
		all = append(all, signer{"php", []string{"php", in("sign.php")}, []string{vendor}})
	}
	return all
}

// install runs a package manager in a new directory, and reports whether it succeeded.
func install(t *testing.T, command ...string) (dir string, ok bool) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("%s does not work here, so its example was not run: %v\n%s", command[0], err, out)
	}
	return dir, err == nil
}

// run returns what the program prints.
func (s signer) run(t *testing.T, key string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.command[0], append(s.command[1:len(s.command):len(s.command)], args...)...)
	cmd.Env = append(os.Environ(), append(s.env, "SIGNING_KEY="+key, "KEY_ID="+s.language)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v", s.language, args, err)
	}
	return strings.TrimSpace(string(out))
}

// The examples that sign tokens work unchanged: the keys that they print are served at a URL, and the tokens that they
// print buy.
func TestExamplesThatSignTokens(t *testing.T) {
	t.Parallel()
	signers := signersOf(t)
	pems, sets := map[string]string{}, []json.RawMessage{}
	for _, s := range signers {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		pems[s.language] = filepath.Join(t.TempDir(), "private.pem")
		text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		if err := os.WriteFile(pems[s.language], text, 0o600); err != nil {
			t.Fatal(err)
		}
		var set struct{ Keys []json.RawMessage }
		if err := json.Unmarshal([]byte(s.run(t, pems[s.language], "keys")), &set); err != nil || len(set.Keys) != 1 {
			t.Fatalf("%s: %d keys, %v", s.language, len(set.Keys), err)
		}
		sets = append(sets, set.Keys...)
	}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": sets})
	}))
	t.Cleanup(provider.Close)
	u := startUp(t, t.TempDir(), "--token-keys", provider.URL+"/jwks.json",
		"--token-issuer", "https://shop.example", "--token-audience", "sluice")
	for _, s := range signers {
		raw := s.run(t, pems[s.language], "token", "buyer of "+s.language)
		if a := do(t, "POST", u.base+"/v1/sales/demo/orders", raw, ""); a.Status != 202 {
			t.Errorf("%s: %d %s", s.language, a.Status, a.Body)
		}
	}
	t.Logf("%d languages", len(signers))
}
