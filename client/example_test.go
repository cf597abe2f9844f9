package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"sluice/client"
)

// Buys a unit and waits until the order is in the database.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	server, stop := demo()
	defer stop()

	c, err := client.New(server, client.WithToken(os.Getenv("BUYER_TOKEN")))
	if err != nil {
		fmt.Println(err)
		return
	}
	bought, err := c.Buy(ctx, "drop", "basket-7") // a retry for the same basket returns the same order
	switch {
	case errors.Is(err, client.SoldOut):
		fmt.Println("sold out")
		return
	case err != nil:
		fmt.Println(err)
		return
	}
	order, err := c.WaitOrder(ctx, bought.OrderID)
	fmt.Println(order.OrderID, order.Status, err)
	// Output: 932718348271616001 created <nil>
}

func ExampleClient_Sale() {
	server, stop := demo()
	defer stop()
	c, err := client.New(server)
	if err != nil {
		fmt.Println(err)
		return
	}
	sale, err := c.Sale(context.Background(), "drop")
	fmt.Println(sale.Title, sale.State, sale.Left, err)
	_, err = c.Sale(context.Background(), "nothing")
	fmt.Println(errors.Is(err, client.NotFound))
	// Output:
	// Tea open 42 <nil>
	// true
}

func ExampleClient_OrderEvents() {
	server, stop := demo()
	defer stop()
	c, err := client.New(server, client.WithToken("..."))
	if err != nil {
		fmt.Println(err)
		return
	}
	for order, err := range c.OrderEvents(context.Background(), "932718348271616001") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(order.Status)
		if order.Status == client.Paid {
			break
		}
	}
	// Output:
	// created
	// paid
}

func ExampleAdmin_Restock() {
	server, stop := demo()
	defer stop()
	admin, err := client.NewAdmin(server, os.Getenv("SLUICE_ADMIN_TOKEN"), client.WithActor("ann"))
	if err != nil {
		fmt.Println(err)
		return
	}
	sale, err := admin.Restock(context.Background(), "drop", 100, "second-delivery") // a repeated call adds no units
	fmt.Println(sale.Stock, err)
	// Output: 200 <nil>
}

func ExampleWebhookHandler() {
	var processed sync.Map // use a database, and the transaction that processes the webhook
	handle := func(_ *http.Request, w client.Webhook) error {
		if _, known := processed.LoadOrStore(w.ID, true); !known {
			fmt.Println(w.Type, w.Data.OrderID)
		}
		return nil
	}
	http.Handle("/hooks/sluice", client.WebhookHandler(os.Getenv("WEBHOOK_SECRET"), handle))
}

// demo starts a server with fixed responses.
func demo() (base string, stop func()) {
	respond := func(status int, media, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		}
	}
	const order = `{"order_id":"932718348271616001","sale_id":"drop","status":"%s","created_at":"2026-11-27T10:00:07Z"}`
	mux := http.NewServeMux()
	mux.Handle("POST /v1/sales/drop/orders", respond(202, "application/json", fmt.Sprintf(order, "queued")))
	mux.Handle("GET /v1/sales/drop", respond(200, "application/json",
		`{"id":"drop","title":"Tea","state":"open","left":42}`))
	mux.Handle("GET /v1/sales/nothing", respond(404, "application/problem+json",
		`{"status":404,"title":"Not found","code":"not-found"}`))
	mux.Handle("GET /v1/orders/932718348271616001", respond(200, "application/json", fmt.Sprintf(order, "created")))
	mux.Handle("GET /v1/orders/932718348271616001/events", respond(200, "text/event-stream",
		"event: order\ndata: "+fmt.Sprintf(order, "created")+"\n\nevent: order\ndata: "+fmt.Sprintf(order, "paid")+"\n\n"))
	mux.Handle("POST /admin/v1/sales/drop/restock", respond(200, "application/json", `{"id":"drop","stock":200}`))
	s := httptest.NewServer(mux)
	return s.URL, s.Close
}
