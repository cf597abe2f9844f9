package api

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver/servertest"
)

// BenchmarkPurchase measures a purchase over a kept-alive connection without the decision: the parsing of the request,
// the verification of the token, and the response.
func BenchmarkPurchase(b *testing.B) {
	for name, d := range map[string]admission.Decision{
		"accepted": {Outcome: sale.Accepted, OrderID: servertest.OrderID(1)}, "sold_out": {Outcome: sale.SoldOut, Version: 7},
	} {
		b.Run(name, func(b *testing.B) {
			w := newWorld()
			cfg := w.config(b)
			cfg.Admitter = fixed(d)
			s := serve(b, cfg)
			request := "POST /v1/sales/drop/orders HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nX-Request-Id: " +
				"0123456789abcdef0123456789abcdef\r\nAuthorization: " + bearerOf(
				b,
				"ann",
			) + "\r\n\r\n"
			c, err := net.Dial("tcp", s.Addr)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			r := bufio.NewReader(c)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := io.WriteString(c, request); err != nil {
					b.Fatal(err)
				}
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
