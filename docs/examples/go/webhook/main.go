// Command webhook receives webhooks: WEBHOOK_SECRET=whsec_... PORT=9000 webhook
package main

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"sync"
	"time"

	"sluice/client"
)

func main() {
	secret := os.Getenv("WEBHOOK_SECRET")
	if !regexp.MustCompile("^whsec_.{32}").MatchString(secret) { // with an empty secret, any sender can sign
		fmt.Fprintln(os.Stderr, "usage: WEBHOOK_SECRET=whsec_... PORT=9000 webhook")
		os.Exit(2)
	}
	var mu sync.Mutex
	processed := map[string]bool{} // use a database, and the transaction that processes the webhook
	handler := client.WebhookHandler(secret, func(_ *http.Request, w client.Webhook) error {
		mu.Lock()
		defer mu.Unlock()
		if !processed[w.ID] {
			fmt.Fprintln(os.Stdout, w.Type, w.ID) // process it here; after an error it is sent again
			processed[w.ID] = true
		}
		return nil
	})
	port := os.Getenv("PORT")
	if port == "" {
		port = "9000"
	}
	server := &http.Server{Addr: "127.0.0.1:" + port, Handler: handler, ReadTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}
