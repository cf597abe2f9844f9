package tokentest

import (
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

// RFCVectors returns the examples of RFC 7515 (A.1 to A.3) and RFC 8037 (A.4).
func RFCVectors() []Vector {
	const payload = ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
	vector := func(name, key, text, signature string) Vector {
		return Vector{name, key, text, must(B64.DecodeString(signature)), true}
	}
	return []Vector{
		vector("RFC 7515, A.1", `{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuT`+
			`wjAzZr1Z9CAow"}`, "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"+payload,
			"dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
		vector("RFC 7515, A.2", `{"kty":"RSA","e":"AQAB","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmf`+
			`HQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kp`+
			`aSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-`+
			`DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"}`, "eyJhbGciOiJSUzI1NiJ9"+payload,
			"cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr"+
				"7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--x"+
				"i12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_Ioyp"+
				"GlUPQGe77Rw"),
		vector("RFC 7515, A.3", `{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",`+
			`"y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`, "eyJhbGciOiJFUzI1NiJ9"+payload,
			"DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"),
		vector("RFC 8037, A.4", `{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`,
			"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
			"hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"),
	}
}
