package tokentest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/internal/token"
)

// JWS is a token with any payload, the JWK Set of its verifier, and the expected result for its header and signature.
type JWS struct {
	Name, Keys, Token string
	Signed            bool
}

// accepted lists the algorithms of verifiers. Vectors of other algorithms are valid but must be rejected here.
var accepted = []string{token.HS256, token.RS256, token.PS256, token.ES256, token.EdDSA}

// exceptions lists vectors of Wycheproof with a different expected result here, by file and id.
var exceptions = map[string]bool{
	"json_web_signature 367": true,  // the same token as 357, which is valid
	"json_web_signature 370": true,  // the same
	"json_web_signature 372": false, // a character outside of base64url, which no verifier here ignores
	"json_web_signature 373": false, // the same
	"json_web_key 1":         true,  // a file of keys may have secrets beside public keys
	"json_web_key 7":         true,  // only the issuer that generated the primes uses them
}

// JWSVectors returns the vectors of Project Wycheproof for JSON Web Signatures and keys. They include the examples of
// RFC 7520.
func JWSVectors(t *testing.T) []JWS {
	t.Helper()
	read := openWycheproof(t)
	var all []JWS
	for _, name := range []string{"json_web_signature", "json_web_key"} {
		var file struct {
			TestGroups []struct {
				Public, Private json.RawMessage
				Tests           []struct {
					TcID                 int
					Comment, JWS, Result string
				}
			}
		}
		read(name, &file)
		for _, g := range file.TestGroups {
			keys := string(g.Public)
			if keys == "" { // a secret
				keys = string(g.Private)
			}
			if !strings.Contains(keys, `"keys"`) {
				keys = `{"keys":[` + keys + `]}`
			}
			for _, test := range g.Tests {
				id := fmt.Sprintf("%s %d", name, test.TcID)
				signed := test.Result == "valid" && slices.Contains(accepted, algOf(test.JWS))
				if other, ok := exceptions[id]; ok {
					signed = other
				}
				all = append(all, JWS{Name: id + ": " + test.Comment, Keys: keys, Token: test.JWS, Signed: signed})
			}
		}
	}
	return all
}

// algOf returns the algorithm in a token's header, or "" if it has none.
func algOf(raw string) string {
	head, _, _ := strings.Cut(raw, ".")
	text, err := B64.DecodeString(head)
	var header struct{ Alg string }
	if err != nil || json.Unmarshal(text, &header) != nil {
		return ""
	}
	return header.Alg
}
