// Command webhook receives webhooks: WEBHOOK_SECRET=whsec_... PORT=9000 webhook
package main

import (
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"sluice/client"
)

func main() {
	var mu sync.Mutex
	processed := map[string]bool{} // use a database, and the transaction that processes the webhook
	handler := client.WebhookHandler(os.Getenv("WEBHOOK_SECRET"), func(_ *http.Request, w client.Webhook) error {
		mu.Lock()
		defer mu.Unlock()
		if !processed[w.ID] {
			processed[w.ID] = true
			fmt.Fprintln(os.Stdout, w.Type, w.ID)
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
