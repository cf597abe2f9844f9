// Command shop is a small shop in front of which sluice sells: it signs buyers in, publishes the keys of their tokens,
// takes payments and receives webhooks. It stores everything in memory and takes no real money.
//
//	LISTEN=127.0.0.1:9000 SALES=http://127.0.0.1:8080 PAYMENT_SECRET=whsec_... WEBHOOK_SECRET_FILE=hook.secret go run ./docs/examples/go/shop
//
// WEBHOOK_SECRET_FILE has the secret that `sluice webhook add` prints. It may be written later, and is read for each
// webhook. SIGHUP replaces the signing key. Tokens of the previous key stay valid, because it is still published.
package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"sluice/client"
)

// tokenLifetime is how long a token is valid. The page of a sale then sends the buyer here again.
const tokenLifetime = 15 * time.Minute

type shop struct {
	issuer, audience string // of tokens
	sales            string // origin of the pages of sales
	paymentSecret    []byte
	sluice           *client.Client

	mu       sync.Mutex
	keys     []signingKey      // the first one signs
	sessions map[string]string // buyers by session
	payments map[string]string // by order: a second attempt to pay repeats the first payment
	webhooks []client.Webhook  // in the order of arrival, each once
	received int               // webhooks with repetitions
}

type signingKey struct {
	id      string
	private *ecdsa.PrivateKey
}

func main() {
	if err := run(); err != nil {
		slog.Error("the shop ends", "err", err)
		os.Exit(1)
	}
}

func run() error {
	listen := cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:9000")
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("PAYMENT_SECRET"), "whsec_"))
	if err != nil || len(secret) < 24 {
		return errors.New("PAYMENT_SECRET: want whsec_ and the base64 of at least 24 bytes")
	}
	s := &shop{
		issuer: "http://" + listen, audience: cmp.Or(os.Getenv("AUDIENCE"), "sluice"), sales: os.Getenv("SALES"),
		paymentSecret: secret, sessions: map[string]string{}, payments: map[string]string{},
	}
	if s.sluice, err = client.New(s.sales); err != nil {
		return fmt.Errorf("SALES: %w", err)
	}
	if err := s.newKey(); err != nil {
		return err
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		for range hup {
			if err := s.newKey(); err != nil {
				slog.Error("no new key", "err", err)
			}
		}
	}()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /jwks.json", s.jwks)
	mux.HandleFunc("GET /login", s.login)
	mux.HandleFunc("POST /login", s.signIn)
	mux.HandleFunc("GET /pay", s.checkout)
	mux.HandleFunc("POST /pay", s.pay)
	mux.HandleFunc("GET /webhooks", s.listWebhooks)
	mux.HandleFunc("POST /hooks/sluice", s.hook)
	server := &http.Server{
		Addr: listen, ReadTimeout: 10 * time.Second,
		Handler: http.NewCrossOriginProtection().Handler(mux), // rejects forms of other sites
	}
	slog.Info("the shop is up", "url", s.issuer)
	return server.ListenAndServe()
}

// newKey makes a new key and keeps the previous one, because its tokens are still in use.
func (s *shop) newKey() error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := signingKey{"key-" + rand.Text()[:8], private}
	s.keys = append([]signingKey{key}, s.keys[:min(len(s.keys), 1)]...)
	slog.Info("new key", "kid", key.id)
	return nil
}

// jwks is the JWK Set that --token-keys of sluice names.
func (s *shop) jwks(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	keys := slices.Clone(s.keys)
	s.mu.Unlock()
	set := []map[string]string{}
	for _, k := range keys {
		point, err := k.private.PublicKey.Bytes() // 4, x, y
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		set = append(set, map[string]string{
			"kty": "EC", "crv": "P-256", "kid": k.id, "alg": "ES256", "use": "sig",
			"x": base64.RawURLEncoding.EncodeToString(point[1:33]), "y": base64.RawURLEncoding.EncodeToString(point[33:]),
		})
	}
	reply(w, map[string]any{"keys": set})
}

// token signs a token for a buyer.
func (s *shop) token(buyer string) (string, error) {
	s.mu.Lock()
	key := s.keys[0]
	s.mu.Unlock()
	now := time.Now()
	t := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.RegisteredClaims{
		Subject: buyer, Issuer: s.issuer, Audience: jwt.ClaimStrings{s.audience},
		IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(tokenLifetime)),
	})
	t.Header["kid"] = key.id
	return t.SignedString(key.private)
}

var pages = template.Must(template.New("").Parse(`
{{define "head"}}<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>The shop</title><h1>{{.}}</h1>{{end}}
{{define "login"}}{{template "head" "Sign in"}}<form method="post"><input type="hidden" name="back" value="{{.Back}}">
<label>Name <input name="name" required maxlength="64"></label> <button>Sign in</button></form>{{end}}
{{define "checkout"}}{{template "head" "Checkout"}}<p>Order {{.ID}}, {{.Title}}: {{.Amount}}</p>
<form method="post"><input type="hidden" name="order" value="{{.ID}}"><input type="hidden" name="sale" value="{{.Sale}}"><button>Pay</button></form>{{end}}
{{define "done"}}{{template "head" .Head}}<p>{{.Text}}</p><p><a href="{{.Back}}">Back to the sale</a></p>{{end}}`))

func show(w http.ResponseWriter, status int, page string, data any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if err := pages.ExecuteTemplate(w, page, data); err != nil {
		slog.Error("page", "err", err)
	}
}

// login is the address of --sign-in. Signed-in buyers return to the sale immediately.
func (s *shop) login(w http.ResponseWriter, r *http.Request) {
	back := r.FormValue("back")
	if !s.isSale(back) {
		http.Error(w, "back must be the page of a sale", http.StatusBadRequest)
		return
	}
	if buyer := s.buyer(r); buyer != "" {
		s.sendBack(w, r, buyer, back)
		return
	}
	show(w, http.StatusOK, "login", struct{ Back string }{back})
}

// signIn accepts every name; a real shop verifies a password here.
func (s *shop) signIn(w http.ResponseWriter, r *http.Request) {
	name, back := strings.TrimSpace(r.FormValue("name")), r.FormValue("back")
	if name == "" || len(name) > 64 || !s.isSale(back) {
		http.Error(w, "a name and the page of a sale are required", http.StatusBadRequest)
		return
	}
	session := rand.Text()
	s.mu.Lock()
	s.sessions[session] = name
	s.mu.Unlock()
	cookie := &http.Cookie{Name: "shop", Value: session, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode}
	http.SetCookie(w, cookie)
	s.sendBack(w, r, name, back)
}

// isSale reports whether a URL is the page of a sale. Any other site would receive the buyer's token.
func (s *shop) isSale(url string) bool { return strings.HasPrefix(url, s.sales+"/s/") }

func (s *shop) sendBack(w http.ResponseWriter, r *http.Request, buyer, back string) {
	token, err := s.token(buyer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.Redirect(w, r, back+"#token="+token, http.StatusSeeOther)
}

func (s *shop) buyer(r *http.Request) string {
	cookie, err := r.Cookie("shop")
	if err != nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[cookie.Value]
}

// order returns the buyer's order and its sale. The token makes sure that the order is the buyer's own.
func (s *shop) order(r *http.Request) (client.Order, client.Sale, error) {
	buyer := s.buyer(r)
	if buyer == "" {
		return client.Order{}, client.Sale{}, fmt.Errorf("no buyer is signed in")
	}
	token, err := s.token(buyer)
	if err != nil {
		return client.Order{}, client.Sale{}, err
	}
	order, err := s.sluice.As(token).Order(r.Context(), r.FormValue("order"))
	if err != nil {
		return client.Order{}, client.Sale{}, err
	}
	sale, err := s.sluice.Sale(r.Context(), order.SaleID)
	return order, sale, err
}

// checkout is the address of --checkout.
func (s *shop) checkout(w http.ResponseWriter, r *http.Request) {
	order, sale, err := s.order(r)
	if err != nil {
		http.Error(w, "there is no such order of yours: "+err.Error(), http.StatusNotFound)
		return
	}
	if order.Status != client.Created {
		s.done(w, sale.ID, http.StatusConflict, "This order cannot be paid", "It is "+string(order.Status)+".")
		return
	}
	// two decimals are wrong for a few currencies, such as JPY
	amount := fmt.Sprintf("%d.%02d %s", sale.Price.Amount/100, sale.Price.Amount%100, sale.Price.Currency)
	show(w, http.StatusOK, "checkout", struct{ ID, Sale, Title, Amount string }{
		order.OrderID, sale.ID, sale.Title, amount,
	})
}

// pay takes the payment, which always succeeds, and reports it to sluice until sluice has recorded it.
func (s *shop) pay(w http.ResponseWriter, r *http.Request) {
	order, sale, err := s.order(r)
	if err != nil {
		http.Error(w, "there is no such order of yours: "+err.Error(), http.StatusNotFound)
		return
	}
	payment := s.payment(order.OrderID)
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		status, retryAfter, err := s.callback(r.Context(), payment, order.OrderID, sale.Price)
		switch {
		case err == nil && status < 300:
			s.done(w, sale.ID, http.StatusOK, "Thank you", "Your order is paid.")
			return
		case err == nil && status == http.StatusConflict: // the hold has ended
			slog.Warn("payment to refund", "payment", payment, "order", order.OrderID)
			s.done(w, sale.ID, http.StatusConflict, "Too late", "The order was cancelled. We refund your payment.")
			return
		case err == nil && status < 500 && status != http.StatusTooManyRequests:
			slog.Error("callback was rejected", "payment", payment, "status", status) // such as 401: another secret
			http.Error(w, "the payment cannot be recorded", http.StatusBadGateway)
			return
		}
		wait := max(pause, retryAfter)
		slog.Warn("callback was not recorded, retrying", "payment", payment, "status", status, "err", err, "wait", wait)
		select {
		case <-time.After(wait):
		case <-r.Context().Done(): // a real shop repeats the callback from a queue
			return
		}
	}
}

func (s *shop) done(w http.ResponseWriter, saleID string, status int, head, text string) {
	show(w, status, "done", struct{ Head, Text, Back string }{head, text, s.sales + "/s/" + saleID})
}

// payment returns the payment of an order.
func (s *shop) payment(orderID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.payments[orderID] == "" {
		s.payments[orderID] = "pi_" + rand.Text()
	}
	return s.payments[orderID]
}

// callback reports a payment to sluice. Repeating it with the same payment has no further effect. retryAfter is the
// Retry-After of the response, 0 without one.
func (s *shop) callback(
	ctx context.Context, payment, orderID string, price client.Price,
) (status int, retryAfter time.Duration, err error) {
	body, err := json.Marshal(map[string]any{"type": "payment.succeeded", "data": map[string]any{
		"order_id": orderID, "amount": price.Amount, "currency": price.Currency, "reference": payment,
	}})
	if err != nil {
		return 0, 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.sales+"/v1/payments", strings.NewReader(string(body)))
	if err != nil {
		return 0, 0, err
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, s.paymentSecret)
	mac.Write([]byte(payment + "." + now + "." + string(body)))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", payment)
	req.Header.Set("Webhook-Timestamp", now)
	req.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	resp, err := (&http.Client{Timeout: 15 * time.Second}).Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, time.Duration(seconds) * time.Second, err
}

// hook verifies and receives a webhook.
func (s *shop) hook(w http.ResponseWriter, r *http.Request) {
	secret, err := os.ReadFile(os.Getenv("WEBHOOK_SECRET_FILE"))
	if err != nil {
		http.Error(w, "the secret of webhooks is not known yet", http.StatusServiceUnavailable) // sluice repeats it
		return
	}
	client.WebhookHandler(strings.TrimSpace(string(secret)), s.receive).ServeHTTP(w, r)
}

// receive stores a webhook once. Its signature is verified already.
func (s *shop) receive(_ *http.Request, hook client.Webhook) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received++
	if !slices.ContainsFunc(s.webhooks, func(known client.Webhook) bool { return known.ID == hook.ID }) {
		s.webhooks = append(s.webhooks, hook) // on order.paid, a real shop delivers
		slog.Info("webhook", "type", hook.Type, "order", hook.Data.OrderID)
	}
	return nil
}

// listWebhooks lists the webhooks. A real shop shows them to its staff only.
func (s *shop) listWebhooks(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply(w, map[string]any{"webhooks": s.webhooks, "received": s.received})
}

func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		slog.Error("reply", "err", err)
	}
}
