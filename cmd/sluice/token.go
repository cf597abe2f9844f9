package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/sale"
	"sluice/internal/token"
)

type tokenJSON struct {
	Token     string    `json:"token"`
	User      string    `json:"user"`
	ExpiresAt time.Time `json:"expires_at"`
}

func (p *program) tokenCommand() *cobra.Command {
	var user, data, kid, keys string
	var claims token.Expect
	var ttl time.Duration
	var signer *token.Signer
	c := &cobra.Command{
		Use:   "token --user U",
		Short: "Print a signed token for a buyer",
		Long: `Print a JWT for a buyer. With --kid it is signed with that key of the --token-keys file, which must
contain its private part. Without --kid it is signed with ` + envSecret + `, else with the only
private key of that file, else with the secret in the data directory of "sluice up".`,
		Example: `  sluice token --user ann
  curl -X POST -H "Authorization: Bearer $(sluice token --user ann --ttl 10m)" http://127.0.0.1:8080/v1/sales/demo/orders
  sluice token --user ann --token-keys private.json --kid 2026-11`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("unexpected argument %q: want sluice token --user %s, or sluice token check TOKEN", args[0], args[0])
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			signed, err := signer.Sign(user, ttl)
			if err != nil {
				return err
			}
			result := tokenJSON{signed, user, time.Now().Add(ttl).UTC().Truncate(time.Second)}
			return p.show(result, func(w io.Writer) { fmt.Fprintln(w, signed) })
		},
	}
	f := p.flags(c)
	f.StringVar(&user, "user", "", "buyer: the token's sub")
	f.duration(&ttl, "ttl", "", time.Hour, 1, 0, "how long the token is valid")
	f.str(&keys, "token-keys", envKeys, "", "JWK Set file with the private key to sign with, or a file with one JWK")
	f.StringVar(&kid, "kid", "", "key of --token-keys that signs")
	f.expect(&claims)
	f.json(&p.json)
	f.str(&data, "data", envData, defaultData, dataHelp)
	f.check(func(bad *problems) {
		if user == "" {
			bad.add("--user is missing: want the buyer of the token, such as --user ann")
		} else {
			bad.check("--user", sale.ValidateBuyer(user))
		}
		var err error
		if signer, err = p.signer(data, keys, kid, claims); err != nil {
			bad.add("%v", err)
		}
	})
	return parent(c, p.tokenCheckCommand())
}

// signer returns the signer that the flags select, as the help of sluice token describes. Empty claims are those of the
// sluice up that uses the data directory.
func (p *program) signer(data, keys, kid string, claims token.Expect) (*token.Signer, error) {
	claims = dataDir(data).claims(claims)
	switch {
	case kid != "" && keys == "":
		return nil, errors.New("--kid selects a key of a file: name the file with --token-keys")
	case keys != "" && (kid != "" || p.getenv(envSecret) == ""):
		text, err := token.ReadFile(keys)
		if err != nil {
			return nil, fmt.Errorf("--token-keys: %w", err)
		}
		signer, err := token.NewSigner(text, kid)
		if err != nil {
			return nil, fmt.Errorf("--token-keys: %s: %w", keys, err)
		}
		return signer.With(claims), nil
	}
	secret, err := p.secretOf(dataDir(data))
	switch {
	case err != nil:
		return nil, err
	case secret == "":
		return nil, usage("no token secret: set %s, or --data to the directory of a sluice up (%s has none)", envSecret, data)
	case len(secret) < token.MinSecret:
		return nil, shortSecret(secret)
	}
	key, err := token.NewKey(secret)
	if err != nil {
		return nil, err
	}
	return key.With(claims), nil
}

// secretOf returns the token secret from the environment, else from the data directory; empty when neither has one.
func (p *program) secretOf(d dataDir) (string, error) {
	if s := p.getenv(envSecret); s != "" {
		return s, nil
	}
	s, err := d.read(tokenSecretFile)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return s, err
}
