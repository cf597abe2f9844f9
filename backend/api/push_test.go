package api

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"

	"sluice/backend/web/httpserver/servertest"
	"sluice/internal/outbound"
)

func TestSubscriptionsOfABuyer(t *testing.T) {
	w := newWorld()
	cfg := w.config(t)
	cfg.Subscriptions, cfg.PushKey = &fakeSubscriptions{}, "BPublic"
	cfg.CheckPushURL = outbound.New(outbound.Config{}).CheckURL
	s := serve(t, cfg)
	if a := s.Do("GET", "/v1/push/key", ""); a.Status != 200 || a.Field(t, "key") != "BPublic" {
		t.Errorf("%+v", a)
	}
	k, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p256dh := base64.RawURLEncoding.EncodeToString(k.PublicKey().Bytes())
	auth := base64.RawURLEncoding.EncodeToString(make([]byte, 16))
	good := `{"endpoint":"https://push.example/abc","expirationTime":null,"keys":{"p256dh":"` + p256dh + `","auth":"` + auth + `"},"lang":"zh-CN"}`
	const path = "/v1/me/push/subscriptions"
	ann, bob := "Authorization: "+bearerOf(t, "ann"), "Authorization: "+bearerOf(t, "bob")
	const asJSON = "Content-Type: application/json; charset=utf-8"
	a := s.Do("POST", path, good, ann, asJSON)
	if a.Status != 201 || a.Field(t, "id") != "1" || a.Field(t, "lang") != "zh" || strings.Contains(a.Body, auth) ||
		strings.Contains(a.Body, p256dh) {
		t.Fatalf("%+v", a)
	}
	if a := s.Do("GET", path, "", ann); a.Status != 200 || !strings.Contains(a.Body, "https://push.example/abc") {
		t.Errorf("%+v", a)
	}
	if a := s.Do("GET", path, "", bob); a.Status != 200 || strings.TrimSpace(a.Body) != `{"subscriptions":[]}` {
		t.Errorf("bob sees %s", a.Body)
	}
	servertest.WantProblem(t, s.Do("DELETE", path+"/1", "", bob), 404, "not-found")
	for _, id := range []string{"0", "-1", "+1", "01", "x", "99999999999999999999", "1e3"} {
		servertest.WantProblem(t, s.Do("DELETE", path+"/"+id, "", ann), 400, "bad-request")
	}
	if a := s.Do("DELETE", path+"/1", "", ann); a.Status != 204 || a.Body != "" {
		t.Errorf("%+v", a)
	}
	servertest.WantProblem(t, s.Do("DELETE", path+"/1", "", ann), 404, "not-found")

	for name, body := range map[string]string{
		"nothing":         ``,
		"no object":       `[]`,
		"twice":           `{"endpoint":"https://a.example","endpoint":"https://b.example"}`,
		"unknown field":   strings.Replace(good, `"lang"`, `"language"`, 1),
		"unknown key":     strings.Replace(good, `"auth"`, `"auth2"`, 1),
		"http":            strings.Replace(good, "https://", "http://", 1),
		"file":            strings.Replace(good, "https://push.example", "file:///etc/passwd", 1),
		"loopback":        strings.Replace(good, "push.example", "127.0.0.1", 1),
		"metadata":        strings.Replace(good, "push.example", "169.254.169.254", 1),
		"mapped":          strings.Replace(good, "push.example", "[::ffff:10.0.0.1]", 1),
		"localhost":       strings.Replace(good, "push.example", "localhost", 1),
		"a user":          strings.Replace(good, "push.example", "u:p@push.example", 1),
		"a fragment":      strings.Replace(good, "/abc", "/abc#x", 1),
		"a port of redis": strings.Replace(good, "push.example", "push.example:6379", 1),
		"a line end":      strings.Replace(good, "/abc", `/abc\r\nX: y`, 1),
		"keys as text":    `{"endpoint":"https://push.example/abc","keys":"x"}`,
		"no point":        strings.Replace(good, p256dh, "AAAA", 1),
		"short secret":    strings.Replace(good, auth, "AAAA", 1),
		"a language":      strings.Replace(good, "zh-CN", "tlh", 1),
		"too long":        strings.Replace(good, "/abc", "/"+strings.Repeat("x", 5000), 1),
	} {
		a := s.Do("POST", path, body, ann, asJSON)
		if a.Status != 400 || a.Field(t, "errors") == "" || strings.Contains(a.Body, auth) {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	a = s.Do("POST", path, strings.Replace(good, "https://", "ftp://", 1), ann, asJSON)
	if want := `"errors":[{"field":"endpoint","detail":"must begin with https://"}]`; !strings.Contains(a.Body, want) {
		t.Errorf("with another protocol: %s", a.Body)
	}
	a = s.Do("POST", path, `{"keys":{"auth":"`+auth+`"},"lang":"tlh"}`, ann, asJSON)
	if want := `[{"field":"endpoint","detail":"must be set"},{"field":"keys.p256dh","detail":"must be set"},` +
		`{"field":"lang","detail":"must be en or zh"}]`; !strings.Contains(a.Body, want) {
		t.Errorf("without an endpoint and a key: %s", a.Body)
	}
	servertest.WantProblem(t, s.Do("POST", path, good, ann, "Content-Type: text/plain"), 400, "bad-request")
	for _, c := range [][2]string{{"GET", path}, {"POST", path}, {"DELETE", path + "/1"}} {
		servertest.WantProblem(t, s.Do(c[0], c[1], good, asJSON), 401, "unauthorized")
	}

	off := newWorld().serve(t) // not configured
	servertest.WantProblem(t, off.Do("GET", "/v1/push/key", ""), 503, "temporarily-unavailable")
	servertest.WantProblem(t, off.Do("POST", path, good, ann, asJSON), 503, "temporarily-unavailable")
}
