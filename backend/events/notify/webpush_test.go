package notify_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
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
)

// browser is a browser's half of Web Push.
type browser struct {
	key  *ecdh.PrivateKey
	auth []byte
}

func newBrowser(t testing.TB) browser {
	t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b := browser{key, make([]byte, 16)}
	_, _ = rand.Read(b.auth)
	return b
}

func (b browser) subscription(endpoint string) notify.Subscription {
	return notify.Subscription{Endpoint: endpoint, P256dh: b64(b.key.PublicKey().Bytes()), Auth: b64(b.auth)}
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

// decrypt is section 3.4 of RFC 8291 and section 2 of RFC 8188, from the reader's side.
func (b browser) decrypt(body []byte) ([]byte, error) {
	if len(body) < 21 || len(body) < 21+int(body[20]) {
		return nil, errors.New("no header")
	}
	salt, size, sender, text := body[:16], binary.BigEndian.Uint32(body[16:20]), body[21:21+int(body[20])], body[21+int(body[20]):]
	if len(text) > int(size) {
		return nil, errors.New("longer than its record")
	}
	public, err := ecdh.P256().NewPublicKey(sender)
	if err != nil {
		return nil, err
	}
	secret, err := b.key.ECDH(public)
	if err != nil {
		return nil, err
	}
	ikm, err := hkdf.Key(sha256.New, secret, b.auth, "WebPush: info\x00"+string(b.key.PublicKey().Bytes())+string(sender), 32)
	if err != nil {
		return nil, err
	}
	cek, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(cek)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	plain, err := gcm.Open(nil, nonce, text, nil)
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(plain, 2) // the last record; zeros behind it
	if end < 0 || len(bytes.Trim(plain[end+1:], "\x00")) > 0 {
		return nil, errors.New("no end of the record")
	}
	return plain[:end], nil
}

// The example of RFC 8291, section 5: the browser of these tests reads what the standard says.
func TestBrowserReadsTheExampleOfTheStandard(t *testing.T) {
	key, err := ecdh.P256().NewPrivateKey(unb64(t, "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"))
	if err != nil {
		t.Fatal(err)
	}
	b := browser{key, unb64(t, "BTBZMqHH6r4Tts7J_aSIgg")}
	got, err := b.decrypt(unb64(t, "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"))
	if err != nil || string(got) != "When I grow up, I want to be a watermelon" {
		t.Fatalf("%q, %v", got, err)
	}
}

// pushService is a push service with one browser behind it.
type pushService struct {
	*httptest.Server
	t       *testing.T
	browser browser
	key     notify.Key

	mu     sync.Mutex
	got    []map[string]string // payloads
	heads  []http.Header
	answer func(n int) (status int, retryAfter string)
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
	plain, err := s.browser.decrypt(body)
	var payload map[string]string
	if err == nil {
		err = json.Unmarshal(plain, &payload)
	}
	if err != nil {
		s.t.Errorf("the browser cannot read it: %v", err)
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

// verify is section 4.2 of RFC 8292.
func (s *pushService) verify(r *http.Request) {
	scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	fields := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	raw := unb64(s.t, fields["k"])
	if scheme != "vapid" || fields["k"] != s.key.Public() || len(raw) != 65 {
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
		s.t.Errorf("the signature says %+v, %v", claims, err)
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

func TestKeyIsReadBackAndBadOnesAreRefused(t *testing.T) {
	k := newKey(t)
	if again, err := notify.ParseKey(k.Private()); err != nil || again != k || len(unb64(t, k.Public())) != 65 {
		t.Fatalf("%v, %v", again, err)
	}
	for _, bad := range []string{"", "x", k.Public(), k.Private() + "=", k.Private() + "\n", b64(make([]byte, 32)), b64(bytes.Repeat([]byte{255}, 32)), b64(make([]byte, 31))} {
		if _, err := notify.ParseKey(bad); !errors.Is(err, notify.ErrBadKey) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestSubscriptionIsChecked(t *testing.T) {
	good := newBrowser(t).subscription("https://push.example/1")
	allow := func(string) error { return nil }
	padded := good
	padded.P256dh, padded.Auth, padded.Lang = good.P256dh+"=", good.Auth+"==", "zh-CN"
	if got, err := notify.CheckSubscription(padded, allow); err != nil || got.P256dh != good.P256dh || got.Auth != good.Auth || got.Lang != "zh" {
		t.Fatalf("%+v, %v", got, err)
	}
	offCurve := unb64(t, good.P256dh)
	offCurve[64] ^= 1
	for name, change := range map[string]func(*notify.Subscription){
		"endpoint missing":    func(s *notify.Subscription) { s.Endpoint = "" },
		"endpoint long":       func(s *notify.Subscription) { s.Endpoint += strings.Repeat("x", 2000) },
		"p256dh empty":        func(s *notify.Subscription) { s.P256dh = "" },
		"p256dh not base64":   func(s *notify.Subscription) { s.P256dh = "#" },
		"p256dh off curve":    func(s *notify.Subscription) { s.P256dh = b64(offCurve) },
		"p256dh at infinity":  func(s *notify.Subscription) { s.P256dh = b64([]byte{0}) },
		"p256dh compressed":   func(s *notify.Subscription) { s.P256dh = b64(append([]byte{2}, unb64(t, good.P256dh)[1:33]...)) },
		"p256dh endless":      func(s *notify.Subscription) { s.P256dh = strings.Repeat("A", 1<<20) },
		"auth short":          func(s *notify.Subscription) { s.Auth = b64(make([]byte, 15)) },
		"auth missing":        func(s *notify.Subscription) { s.Auth = "" },
		"lang of nobody here": func(s *notify.Subscription) { s.Lang = "tlh" },
	} {
		s := good
		change(&s)
		if _, err := notify.CheckSubscription(s, allow); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := notify.CheckSubscription(good, func(string) error { return errors.New("no") }); err == nil {
		t.Error("an endpoint that is not allowed is taken")
	}
}
