package token_test

import (
	"testing"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
)

// The vectors have signatures that careless verifiers accept: values out of range, other encodings, other hashes.
func TestVectorsOfWycheproof(t *testing.T) {
	vectors, valid := tokentest.Vectors(t), 0
	for _, v := range vectors {
		ok, err := token.Verifies(v.Key, v.Text, v.Signature)
		if ok != v.Valid || err != nil {
			t.Errorf("%s: %v, %v; want %v", v.Name, ok, err, v.Valid)
		}
		if ok {
			valid++
		}
	}
	t.Logf("%d of %d vectors are valid", valid, len(vectors))
	if valid < 200 || len(vectors)-valid < 200 {
		t.Errorf("%d of %d vectors are valid", valid, len(vectors))
	}
}

func TestExamplesOfRFCs(t *testing.T) {
	for _, v := range tokentest.RFCVectors() {
		if ok, err := token.Verifies(v.Key, v.Text, v.Signature); !ok {
			t.Errorf("%s: %v", v.Name, err)
		}
	}
}

// Tokens that attack the verifier by their header, their encoding or their number of segments.
func TestJWSVectorsOfWycheproof(t *testing.T) {
	signed := 0
	for _, v := range tokentest.JWSVectors(t) {
		ok, err := token.Signed(v.Keys, v.Token)
		if ok != v.Signed {
			t.Errorf("%s: %v (%v), want %v", v.Name, ok, err, v.Signed)
		}
		if ok {
			signed++
		}
	}
	t.Logf("%d tokens are signed", signed)
	if signed < 20 {
		t.Errorf("%d tokens are signed, want at least 20", signed)
	}
}
