package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"sluice/backend/admin"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/token"
)

// fillSecrets takes the secrets from the environment, else from the data directory, where it generates them, and
// checks them. An error of a secret names its source.
func (p *program) fillSecrets(flags *upFlags, data dataDir) error {
	var files []string // names of variables, and the files that replace them
	for _, s := range []struct {
		to        *string
		env, file string
		generate  func() (string, error)
	}{
		{&flags.secret, envSecret, tokenSecretFile, newSecret},
		{&flags.cfg.AdminToken, envAdminToken, adminTokenFile, newSecret},
		{&flags.vapid, envVAPID, vapidFile, newVAPID},
	} {
		if *s.to = p.getenv(s.env); *s.to != "" {
			continue
		}
		var err error
		if *s.to, err = data.secret(s.file, s.generate); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
		files = append(files, s.env, data.path(s.file))
	}
	var bad problems
	flags.finishSecrets(p.getenv, &bad)
	flags.group.cfg.WebPush.Key = flags.cfg.PushKey
	for i, problem := range bad {
		bad[i] = strings.NewReplacer(files...).Replace(problem)
	}
	return bad.err()
}

func createDemo(ctx context.Context, sales *admin.Service) error {
	_, err := sales.Create(store.WithActor(ctx, "sluice up"), sale.Sale{
		ID:       demoSale,
		Title:    "Demo: the last hundred",
		Price:    sale.Price{Amount: 1999, Currency: "EUR"},
		Stock:    100,
		PerBuyer: 1,
		OpensAt:  time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		Switch:   sale.On,
	})
	if errors.Is(err, sale.ErrExists) {
		return nil // from an earlier start, changed since
	}
	return err
}

// reachable returns the address at which this machine reaches a listener.
func reachable(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return a.String()
	}
	return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
}

func (p *program) printWelcome(flags upFlags, at server, own ownStores) error {
	key, err := token.NewKey(flags.secret)
	if err != nil {
		return usage("%w", err)
	}
	buyer, err := key.With(flags.expect).Sign(fmt.Sprintf("you-%d", time.Now().Unix()), 24*time.Hour)
	if err != nil {
		return err
	}
	data, consoleToken := flags.data, dataDir(flags.data).path(adminTokenFile)
	if p.getenv(envAdminToken) != "" {
		consoleToken = envAdminToken
	}
	if data != defaultData {
		data += "      commands find it with --data " + data + " or " + envData + "=" + data
	}
	fmt.Fprintf(p.out, `sluice is up.

  page         %s/s/%s#token=%s
  public API   %s      GET /v1/sales, POST /v1/sales/%s/orders
  console      %s/admin/      sign in with the token in %s
  admin API    %s      sluice sale list, sluice sale audit %s
  data         %s

Buy one unit and query the order:

  order=$(curl -s -X POST -H 'Authorization: Bearer %s' %s/v1/sales/%s/orders | grep -oE '[0-9]{17,}' | head -n 1); echo "order $order"
  curl -s -H 'Authorization: Bearer %s' "%s/v1/orders/$order?wait=10s"; echo

`, at.Public, demoSale, buyer, at.Public, demoSale, at.Admin, consoleToken, at.Admin, demoSale, data, buyer, at.Public, demoSale, buyer, at.Public)
	if own.redis || own.database {
		fmt.Fprintln(p.out, "The embedded Redis and SQLite are for one machine.")
	}
	if own.redis {
		fmt.Fprintln(p.out, "A power failure may lose the orders of the last second.")
	}
	return nil
}
