package main

import (
	"github.com/spf13/cobra"

	"sluice/internal/token"
)

func (p *program) keysCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "keys",
		Short: "Create the keys that sign and verify tokens, as JWK Sets",
		Example: `  (umask 077; sluice keys new --kid 2026-11 > private.json)
  sluice keys public private.json > keys.json
  sluice token --user ann --token-keys private.json --kid 2026-11
  sluice edge --token-keys keys.json --upstream http://10.0.0.1:8080`,
	}, p.keysNewCommand(), p.keysPublicCommand())
}

func (p *program) keysNewCommand() *cobra.Command {
	var alg, kid string
	c := &cobra.Command{
		Use:   "new --kid NAME",
		Short: "Print a new key with its private part, as a JWK Set of one",
		Example: `  (umask 077; sluice keys new --kid 2026-11 > private.json)
  sluice keys new --kid 2026-11-rsa --alg RS256`,
		RunE: func(*cobra.Command, []string) error {
			text, err := token.Generate(alg, kid)
			if err != nil {
				return usageError{Err: err}
			}
			_, err = p.out.Write(text)
			return err
		},
	}
	f := p.flags(c)
	f.oneOf(c, &alg, "alg", "", token.EdDSA,
		"EdDSA (Ed25519), ES256, PS256, RS256 or HS256 (a secret, which has no public part)",
		token.EdDSA, token.ES256, token.PS256, token.RS256, token.HS256)
	f.StringVar(&kid, "kid", "", "the key's name, for example the current month")
	f.check(func(bad *problems) {
		if kid == "" {
			bad.add("--kid is missing: it names the key in tokens and files, and must be new")
		}
	})
	return c
}

func (p *program) keysPublicCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "public FILE...",
		Short:   "Print the public parts of all keys in these files as one JWK Set for edges and backends",
		Example: `  sluice keys public private.json older.json > keys.json`,
		RunE: func(cmd *cobra.Command, files []string) error {
			var sets [][]byte
			var public []byte
			for _, file := range files {
				text, err := readInput(cmd.Context(), func() ([]byte, error) { return token.ReadFile(file) })
				if err != nil {
					return err
				}
				if _, err := token.Public(text); err != nil {
					return usage("%s: %w", file, err)
				}
				sets = append(sets, text)
				if public, err = token.Public(sets...); err != nil {
					return usage("%s, after the keys of the files before it: %w", file, err)
				}
			}
			_, err := p.out.Write(public)
			return err
		},
	}
}
