package fake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

func (s *Server) public() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /v1/sales/{sale}", s.onSale(func(w http.ResponseWriter, _ *http.Request) {
		b := s.audit()
		answer(w, http.StatusOK, map[string]any{"id": s.saleID, "stock": b.Stock, "left": max(0, b.Left), "per_buyer": 1})
	}))
	mux.HandleFunc("POST /v1/sales/{sale}/orders", s.asBuyer(func(w http.ResponseWriter, r *http.Request, buyer string) {
		s.onSale(func(w http.ResponseWriter, r *http.Request) {
			s.write(w, s.purchase(buyer, r.Header.Get("Idempotency-Key")))
		})(w, r)
	}))
	mux.HandleFunc("GET /v1/orders/{order}", s.asBuyer(func(w http.ResponseWriter, r *http.Request, buyer string) {
		id := r.PathValue("order")
		status := s.find(buyer, id)
		if status == "queued" && r.URL.Query().Has("wait") && s.fault != NeverEmpties {
			time.Sleep(2 * lag) // wait until the order is a row
			status = s.find(buyer, id)
		}
		if status == "" {
			refuse(w, http.StatusNotFound, "not-found", nil)
			return
		}
		answer(w, http.StatusOK, map[string]any{"order_id": id, "sale_id": s.saleID, "status": status})
	}))
	return mux
}

func (s *Server) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /admin/v1/sales", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			ID      string    `json:"id"`
			Stock   int       `json:"stock"`
			OpensAt time.Time `json:"opens_at"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			refuse(w, http.StatusBadRequest, "bad-request", nil)
			return
		}
		s.mu.Lock()
		s.saleID, s.stock, s.opensAt = in.ID, in.Stock, in.OpensAt
		s.mu.Unlock()
		answer(w, http.StatusCreated, map[string]any{"id": in.ID})
	})
	mux.HandleFunc("GET /admin/v1/sales/{sale}/audit", s.onSale(func(w http.ResponseWriter, _ *http.Request) {
		count := s.audit()
		if s.fault == NeverAudits || s.fault == StopsAudits && count.Left < count.Stock {
			refuse(w, http.StatusServiceUnavailable, "temporarily-unavailable", nil)
			return
		}
		answer(w, http.StatusOK, count)
	}))
	mux.HandleFunc("GET /admin/v1/orders", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("sale") != s.saleID || q.Get("status") != "cancelled" {
			refuse(w, http.StatusBadRequest, "bad-request", nil)
			return
		}
		page := map[string]any{"orders": []any{}}
		for _, id := range s.cancelled() { // one a page
			if id > q.Get("after") {
				page["orders"], page["next"] = []any{map[string]any{"order_id": id, "status": "cancelled"}}, id
				break
			}
		}
		answer(w, http.StatusOK, page)
	})
	mux.HandleFunc("POST /admin/v1/sales/{sale}/restock", s.onSale(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Add int }
		if s.fault == NeverStocks {
			refuse(w, http.StatusServiceUnavailable, "temporarily-unavailable", nil)
			return
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			refuse(w, http.StatusBadRequest, "bad-request", nil)
			return
		}
		s.mu.Lock()
		s.stock += in.Add
		s.mu.Unlock()
		answer(w, http.StatusOK, s.audit())
	}))
	mux.HandleFunc("POST /admin/v1/sales/{sale}/close", s.onSale(func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		answer(w, http.StatusOK, map[string]any{"id": s.saleID, "state": "closed"})
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+s.adminToken {
			refuse(w, http.StatusUnauthorized, "unauthorized", nil)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) onSale(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		known := r.PathValue("sale") == s.saleID
		s.mu.Unlock()
		if !known {
			refuse(w, http.StatusNotFound, "not-found", nil)
			return
		}
		h(w, r)
	}
}

func (s *Server) asBuyer(h func(http.ResponseWriter, *http.Request, string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		buyer, ok := s.verify(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		if !ok {
			w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
			refuse(w, http.StatusUnauthorized, "unauthorized", nil)
			return
		}
		h(w, r, buyer)
	}
}

// verify checks an HS256 token. It does not use the package of the real server, so that an error in one is not hidden
// by the other.
func (s *Server) verify(raw string) (buyer string, ok bool) {
	signed, signature, found := cutLast(raw, ".")
	sum, err := base64.RawURLEncoding.DecodeString(signature)
	mac := hmac.New(sha256.New, s.tokenSecret)
	mac.Write([]byte(signed))
	if !found || err != nil || !hmac.Equal(sum, mac.Sum(nil)) {
		return "", false
	}
	_, claims, _ := cutLast(signed, ".")
	text, err := base64.RawURLEncoding.DecodeString(claims)
	var c struct {
		Sub string `json:"sub"`
		Exp int64  `json:"exp"`
	}
	if err != nil || json.Unmarshal(text, &c) != nil || c.Exp <= time.Now().Unix() {
		return "", false
	}
	return c.Sub, c.Sub != ""
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func (s *Server) write(w http.ResponseWriter, d decision) {
	if d.status == http.StatusAccepted {
		if s.fault == Stalls {
			time.Sleep(stall)
		}
		w.Header().Set("Location", "/v1/orders/"+d.orderID)
		if d.replayed {
			w.Header().Set("Idempotency-Replayed", "true")
		}
		answer(w, d.status, map[string]any{"order_id": d.orderID, "sale_id": s.saleID, "status": "queued"})
		return
	}
	if s.fault == ServesHTML {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(d.status)
		fmt.Fprint(w, "<h1>Sorry</h1>")
		return
	}
	if d.code == "sale-not-open" {
		w.Header().Set("Retry-After", "1")
	}
	extra := map[string]any{}
	if d.orderID != "" {
		extra["order_id"] = d.orderID
	}
	refuse(w, d.status, d.code, extra)
}

func refuse(w http.ResponseWriter, status int, code string, extra map[string]any) {
	body := map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "code": code}
	for k, v := range extra {
		body[k] = v
	}
	w.Header().Set("Content-Type", "application/problem+json")
	answer(w, status, body)
}

func answer(w http.ResponseWriter, status int, body any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
