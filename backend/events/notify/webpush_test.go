package notify_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"sluice/backend/events/notify"
	"sluice/backend/events/notify/notifytest"
)

func newBrowser(t testing.TB) notifytest.Browser {
	t.Helper()
	b, err := notifytest.NewBrowser()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func unb64(t testing.TB, s string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The browser of these tests decrypts the example of RFC 8291, section 5.
func TestBrowserDecryptsExampleOfRFC8291(t *testing.T) {
	key, err := ecdh.P256().NewPrivateKey(unb64(t, "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"))
	if err != nil {
		t.Fatal(err)
	}
	b := notifytest.Browser{Key: key, Auth: unb64(t, "BTBZMqHH6r4Tts7J_aSIgg")}
	got, err := b.Decrypt(
		unb64(t, "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6T"+
			"lzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"),
	)
	if err != nil || string(got) != "When I grow up, I want to be a watermelon" {
		t.Fatalf("%q, %v", got, err)
	}
}

// pushService is a push service for the subscriptions of one browser.
type pushService struct {
	*httptest.Server
	t       *testing.T
	browser notifytest.Browser
	key     notify.Key

	mu     sync.Mutex
	got    []map[string]string // payloads
	heads  []http.Header
	answer func(n int) (status int, retryAfter string)      // to the n-th request
	before func(r *http.Request, payload map[string]string) // called before the request is counted; may be nil
}

func newPushService(t *testing.T, key notify.Key) *pushService {
	s := &pushService{t: t, browser: newBrowser(t), key: key, answer: func(int) (int, string) { return 201, "" }}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *pushService) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	if r.Method != "POST" || r.Header.Get("Content-Encoding") != "aes128gcm" || len(body) > 4096 {
		s.t.Errorf("%s %v, %d bytes", r.Method, r.Header, len(body))
	}
	s.verify(r)
	payload, err := s.browser.Payload(body)
	if err != nil {
		s.t.Errorf("the browser cannot decrypt the payload: %v", err)
	}
	if s.before != nil {
		s.before(r, payload)
	}
	s.mu.Lock()
	s.got = append(s.got, payload)
	s.heads = append(s.heads, r.Header.Clone())
	status, after := s.answer(len(s.got))
	s.mu.Unlock()
	if after != "" {
		w.Header().Set("Retry-After", after)
	}
	w.WriteHeader(status)
}

// verify checks the signature (RFC 8292, section 4.2).
func (s *pushService) verify(r *http.Request) {
	scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	fields := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	raw := unb64(s.t, fields["k"])
	if scheme != "vapid" || fields["k"] != s.key.Public || len(raw) != 65 {
		s.t.Errorf("Authorization: %s", r.Header.Get("Authorization"))
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), raw)
	if err != nil {
		s.t.Error(err)
	}
	claims := jwt.RegisteredClaims{}
	_, err = jwt.ParseWithClaims(fields["t"], &claims, func(*jwt.Token) (any, error) { return public, nil },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience(s.URL), jwt.WithExpirationRequired())
	if err != nil || claims.Subject != "mailto:shop@example.com" || time.Until(claims.ExpiresAt.Time) > 24*time.Hour {
		s.t.Errorf("claims %+v, %v", claims, err)
	}
}

func (s *pushService) payloads() []map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]map[string]string(nil), s.got...)
}

func newKey(t testing.TB) notify.Key {
	t.Helper()
	k, err := notify.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestParseKeyRejectsInvalidKeys(t *testing.T) {
	k := newKey(t)
	if again, err := notify.ParseKey(k.Private); err != nil || again != k || len(unb64(t, k.Public)) != 65 {
		t.Fatalf("%v, %v", again, err)
	}
	for _, bad := range []string{
		"", "x", k.Public, k.Private + "=", k.Private + "\n",
		b64(make([]byte, 32)), b64(bytes.Repeat([]byte{255}, 32)), b64(make([]byte, 31)),
	} {
		if _, err := notify.ParseKey(bad); !errors.Is(err, notify.ErrBadKey) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestCheckSubscriptionRejectsInvalidFields(t *testing.T) {
	good := newBrowser(t).Subscription("https://push.example/1")
	allow := func(string) error { return nil }
	padded := good
	padded.P256dh, padded.Auth, padded.Lang = good.P256dh+"=", good.Auth+"==", "zh-CN"
	got, err := notify.CheckSubscription(padded, allow)
	if err != nil || got.P256dh != good.P256dh || got.Auth != good.Auth || got.Lang != "zh" {
		t.Fatalf("%+v, %v", got, err)
	}
	offCurve := unb64(t, good.P256dh)
	offCurve[64] ^= 1
	for name, change := range map[string]func(*notify.Subscription){
		"endpoint missing":   func(s *notify.Subscription) { s.Endpoint = "" },
		"endpoint long":      func(s *notify.Subscription) { s.Endpoint += strings.Repeat("x", 2000) },
		"p256dh empty":       func(s *notify.Subscription) { s.P256dh = "" },
		"p256dh not base64":  func(s *notify.Subscription) { s.P256dh = "#" },
		"p256dh off curve":   func(s *notify.Subscription) { s.P256dh = b64(offCurve) },
		"p256dh at infinity": func(s *notify.Subscription) { s.P256dh = b64([]byte{0}) },
		"p256dh compressed": func(s *notify.Subscription) {
			s.P256dh = b64(append([]byte{2}, unb64(t, good.P256dh)[1:33]...))
		},
		"p256dh endless": func(s *notify.Subscription) { s.P256dh = strings.Repeat("A", 1<<20) },
		"auth short":     func(s *notify.Subscription) { s.Auth = b64(make([]byte, 15)) },
		"auth missing":   func(s *notify.Subscription) { s.Auth = "" },
		"lang unknown":   func(s *notify.Subscription) { s.Lang = "tlh" },
	} {
		s := good
		change(&s)
		if _, err := notify.CheckSubscription(s, allow); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	refuse := func(string) error { return errors.New("no") }
	if _, err := notify.CheckSubscription(good, refuse); err == nil {
		t.Error("an endpoint that is not allowed is accepted")
	}
}
