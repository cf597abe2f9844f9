package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/sale"
	"sluice/internal/token"
)

func (p *program) tokenCommand() *cobra.Command {
	var user, data string
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "token --user U",
		Short: "Print a signed token for a buyer",
		Long: `Print a JWT (HS256) that names a buyer, signed with ` + envSecret + ` or, where that is not set, with the secret
that "sluice up" keeps in its data folder.`,
		Example: `  sluice token --user ann
  curl -H "Authorization: Bearer $(sluice token --user ann --ttl 10m)" http://127.0.0.1:8080/v1/orders/123`,
		RunE: func(*cobra.Command, []string) error {
			var bad mistakes
			if err := sale.ValidateBuyer(user); err != nil {
				bad.add("--user: %v", err)
			}
			if ttl <= 0 {
				bad.add("--ttl must be positive")
			}
			secret, err := p.secretOf(dataDir(data))
			if err != nil {
				bad.add("%v", err)
			} else {
				bad.checkSecret(secret)
			}
			if err := bad.err(); err != nil {
				return err
			}
			key, err := token.NewKey(secret)
			if err != nil {
				return usage("%w", err)
			}
			signed, err := key.Sign(user, ttl)
			if err != nil {
				return err
			}
			fmt.Fprintln(p.out, signed)
			return nil
		},
	}
	c.Flags().StringVar(&user, "user", "", "the buyer, the token's sub")
	c.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long the token is valid")
	p.str(c.Flags(), &data, "data", envData, defaultData, "data folder of sluice up")
	return c
}

// secretOf is the token secret from the environment, else from the data folder; empty when neither has one.
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
