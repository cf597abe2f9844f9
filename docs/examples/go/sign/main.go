// Command sign signs tokens for buyers with ES256, on the server on which they sign in:
//
//	openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out private.pem
//	SIGNING_KEY=private.pem KEY_ID=2026-11 go run ./docs/examples/go/sign keys          the JWK Set to publish
//	SIGNING_KEY=private.pem KEY_ID=2026-11 go run ./docs/examples/go/sign token ann     a token for the buyer ann
package main

import (
	"cmp"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	file := os.Getenv("SIGNING_KEY")
	if file == "" {
		return errors.New("SIGNING_KEY must name the file of the private key")
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	key, err := jwt.ParseECPrivateKeyFromPEM(pem)
	if err != nil {
		return err
	}
	var text string
	switch {
	case len(args) == 1 && args[0] == "keys":
		text, err = publicKeys(key)
	case len(args) == 2 && args[0] == "token":
		text, err = token(key, args[1])
	default:
		err = errors.New("want keys, or token BUYER")
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, text)
	return err
}

// publicKeys returns the JWK Set. While a key is replaced, publish the old one beside it.
func publicKeys(key *ecdsa.PrivateKey) (string, error) {
	point, err := key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"keys": []any{map[string]any{
		"kty": "EC", "crv": "P-256", "kid": os.Getenv("KEY_ID"), "alg": "ES256", "use": "sig",
		"x": base64.RawURLEncoding.EncodeToString(point[1:33]), "y": base64.RawURLEncoding.EncodeToString(point[33:]),
	}}})
	return string(text), err
}

// token returns a token for a buyer that has signed in, for a quarter of an hour.
func token(key *ecdsa.PrivateKey, buyer string) (string, error) {
	now := time.Now()
	t := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.RegisteredClaims{
		Subject:   buyer,
		Issuer:    cmp.Or(os.Getenv("ISSUER"), "https://shop.example"),
		Audience:  jwt.ClaimStrings{cmp.Or(os.Getenv("AUDIENCE"), "sluice")},
		IssuedAt:  jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(15 * time.Minute)),
	})
	t.Header["kid"] = os.Getenv("KEY_ID")
	return t.SignedString(key)
}
