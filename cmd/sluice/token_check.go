package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/token"
)

type tokenVerdict struct {
	Valid     bool       `json:"valid"`
	User      string     `json:"user,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Reason    string     `json:"reason,omitempty"`

	SecretFile string `json:"secret_file,omitempty"` // of a data directory; empty if the environment has the secret
}

// maxTokenInput bounds the input, in bytes. It exceeds the longest token with text that a user may paste around it.
const maxTokenInput = 16 << 10

func (p *program) tokenCheckCommand() *cobra.Command {
	var data, keys, secretFile string
	var expect token.Expect
	var verifier *token.Keys
	c := &cobra.Command{
		Use:   "check TOKEN",
		Short: "Explain why a token is rejected",
		Long: `Verify a token as edges and backends with the same settings do, and explain the result. Clients get
401 without a reason. The argument may begin with "Bearer". The argument - reads the token from
standard input, where other users of the machine cannot see it. The secret is
` + envSecret + `, else that of the data directory of "sluice up". The exit code is 1 if the token
is rejected.`,
		Example: `  sluice token check "$(sluice token --user ann)"
  sluice token check --token-keys https://login.shop.example/jwks.json - < token.txt
  sluice token check --token-keys keys.json --token-issuer https://login.shop.example --token-audience sluice - < token.txt`,
		RunE: func(cmd *cobra.Command, args []string) error {
			raw := args[0]
			if raw == "-" {
				text, err := interruptible(cmd.Context(), func() ([]byte, error) {
					return io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxTokenInput))
				})
				if err != nil {
					return err
				}
				raw = string(text)
			}
			if raw = strings.TrimSpace(raw); len(raw) > 7 && strings.EqualFold(raw[:7], "bearer ") {
				raw = strings.TrimSpace(raw[7:])
			}
			return p.checkToken(cmd.Context(), verifier, raw, secretFile)
		},
	}
	f := p.flags(c)
	f.str(&keys, "token-keys", envKeys, "", "JWK Set of the keys that verify tokens, a file or https://...")
	f.expect(&expect)
	f.json(&p.json)
	f.str(&data, "data", envData, defaultData, dataHelp)
	f.check(func(bad *problems) {
		secret, err := p.secretOf(dataDir(data))
		if err != nil {
			bad.add("%v", err)
			return
		}
		if secret != "" && p.getenv(envSecret) == "" {
			secretFile = dataDir(data).path(tokenSecretFile)
		}
		verifier = bad.checkTokens(secret, keys, dataDir(data).claims(expect))
	})
	return c
}

// checkToken verifies a token. secretFile is the file with the secret, or "".
func (p *program) checkToken(ctx context.Context, keys *token.Keys, raw, secretFile string) error {
	if err := keys.Await(ctx, p.logger()); err != nil {
		return orInterrupted(ctx, err)
	}
	set := keys.Set()
	err := set.Explain(raw)
	result := tokenVerdict{SecretFile: secretFile}
	if err != nil {
		result.Reason = err.Error()
	} else {
		user, expires, err := set.VerifyUntil(raw)
		if err != nil {
			return err // the token has expired since Explain accepted it
		}
		expires = expires.UTC().Truncate(time.Second)
		result.Valid, result.User, result.ExpiresAt = true, user, &expires
	}
	source := ""
	if secretFile != "" {
		source = fmt.Sprintf(" (%s is not set; the secret is that of %s)", envSecret, secretFile)
	}
	err = p.show(result, func(w io.Writer) {
		if !result.Valid {
			return
		}
		hint := ""
		if result.ExpiresAt.Year() == 9999 { // the latest time that a Set returns
			hint = " or later: exp must be in seconds, not in milliseconds"
		}
		fmt.Fprintf(w, "valid: the buyer is %s, until %s%s%s\n",
			result.User, result.ExpiresAt.Format(time.RFC3339), hint, source)
	})
	if err == nil && !result.Valid {
		err = errors.New("the token is rejected: " + result.Reason + source)
	}
	return err
}
