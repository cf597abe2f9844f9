// Command buy buys a unit and waits until the order is in the database: SLUICE_URL=... SLUICE_TOKEN=... buy SALE [KEY]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"sluice/client"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := client.New(os.Getenv("SLUICE_URL"), client.WithToken(os.Getenv("SLUICE_TOKEN")))
	if len(args) == 0 || err != nil || os.Getenv("SLUICE_TOKEN") == "" {
		return errors.Join(errors.New("usage: SLUICE_URL=... SLUICE_TOKEN=... buy SALE [KEY]"), err)
	}
	key := "" // Buy generates one
	if len(args) > 1 {
		key = args[1]
	}
	bought, err := c.Buy(ctx, args[0], key)
	if p, ok := errors.AsType[*client.Problem](err); ok {
		return fmt.Errorf("%s: %w", p.Code, err)
	}
	if err != nil {
		return err
	}
	order, err := c.WaitOrder(ctx, bought.OrderID)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, order.OrderID, order.Status)
	return nil
}
