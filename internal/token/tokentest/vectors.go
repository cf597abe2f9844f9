package tokentest

import (
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// wycheproof is the version of the vectors, and its checksum as in go.sum. go.mod does not require them, because they
// take 100 MB.
const (
	wycheproof    = "github.com/c2sp/wycheproof@v0.0.0-20260902155932-3fa63dd0344a"
	wycheproofSum = "h1:pNbL2nztRsWfW/ispAwsvcDFxs9Id38uIsR2/Up5G2c="
)

// Vector is a signature and the expected result of its verification.
type Vector struct {
	Name      string
	Key       string // JWK
	Text      string
	Signature []byte
	Valid     bool
}

// openWycheproof reads a file of the vectors. It skips the test if they are not in the module cache and cannot be
// downloaded.
func openWycheproof(t *testing.T) func(name string, to any) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", wycheproof)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	var module struct{ Dir, Sum, Error string }
	if decoded := json.Unmarshal(out, &module); err != nil || decoded != nil || module.Error != "" {
		t.Skipf("the vectors cannot be downloaded: %v %s", err, module.Error)
	}
	if module.Sum != wycheproofSum {
		t.Fatalf("the checksum of the vectors is %s, want %s", module.Sum, wycheproofSum)
	}
	return func(name string, to any) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(module.Dir, "testvectors_v1", name+"_test.json"))
		if err == nil {
			err = json.Unmarshal(text, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Vectors returns the vectors of Project Wycheproof for all algorithms of tokens.
func Vectors(t *testing.T) []Vector {
	t.Helper()
	read := openWycheproof(t)
	var all []Vector
	for name, alg := range map[string]string{
		"hmac_sha256": "HS256", "ecdsa_secp256r1_sha256_p1363": "ES256", "ed25519": "EdDSA",
		"rsa_signature_2048_sha256": "RS256", "rsa_signature_3072_sha256": "RS256", "rsa_signature_4096_sha256": "RS256",
		"rsa_pss_2048_sha256_mgf1_32": "PS256", "rsa_pss_3072_sha256_mgf1_32": "PS256",
		"rsa_pss_4096_sha256_mgf1_32": "PS256",
	} {
		var file vectorFile
		read(name, &file)
		vectors := file.vectors(alg)
		if len(vectors) < 80 {
			t.Fatalf("%s: %d vectors", name, len(vectors))
		}
		all = append(all, vectors...)
	}
	return all
}

// vectorFile has the used fields of a file of Wycheproof.
type vectorFile struct {
	TestGroups []struct {
		TagSize              int // bits of a MAC
		PublicKeyJWK, KeyJWK map[string]string
		Tests                []struct {
			TcID               int
			Comment, Result    string
			Key, Msg, Sig, Tag string // in hexadecimal
		}
	}
}

// smallExponent is an RSA exponent of some vectors. Keys with it are rejected here.
const smallExponent = "Aw"

// vectors omits vectors that do not apply to tokens: truncated MACs, MACs of secrets that are too short, RSA keys with
// the exponent 3, and results that depend on the verifier.
func (f vectorFile) vectors(alg string) []Vector {
	var all []Vector
	for _, g := range f.TestGroups {
		jwk := g.PublicKeyJWK
		if jwk == nil {
			jwk = g.KeyJWK
		}
		for _, test := range g.Tests {
			if alg == "HS256" {
				key := must(hex.DecodeString(test.Key))
				if g.TagSize != 256 || len(key) < 32 {
					continue
				}
				jwk = map[string]string{"kty": "oct", "k": encoded(key)}
			}
			if test.Result == "acceptable" || jwk == nil || jwk["e"] == smallExponent {
				continue
			}
			members := map[string]string{"alg": alg}
			for name, value := range jwk {
				if name != "alg" && name != "kid" {
					members[name] = value
				}
			}
			all = append(all, Vector{
				Name:      fmt.Sprintf("%s, test %d: %s", alg, test.TcID, test.Comment),
				Key:       string(must(json.Marshal(members))),
				Text:      string(must(hex.DecodeString(test.Msg))),
				Signature: must(hex.DecodeString(test.Sig + test.Tag)),
				Valid:     test.Result == "valid",
			})
		}
	}
	return all
}

//go:embed testdata/rfc.json
var rfcExamples []byte

// RFCVectors returns the examples of RFC 7515 (A.1 to A.3) and RFC 8037 (A.4).
func RFCVectors() []Vector {
	var examples []struct {
		Name, Text, Signature string
		Key                   json.RawMessage
	}
	if err := json.Unmarshal(rfcExamples, &examples); err != nil {
		panic(err)
	}
	var all []Vector
	for _, e := range examples {
		signature := must(B64.DecodeString(e.Signature))
		all = append(all, Vector{Name: e.Name, Key: string(e.Key), Text: e.Text, Signature: signature, Valid: true})
	}
	return all
}
