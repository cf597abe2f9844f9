package payment

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var now = time.Unix(1_780_000_000, 0)

func secret(fill string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, 32)))
}

// sign implements the scheme a second time.
func sign(t testing.TB, secret, id, timestamp, body string) string {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "." + body))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func verifier(t testing.TB, secrets string) *Verifier {
	t.Helper()
	v, err := NewVerifier(secrets, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func at(d time.Duration) string { return fmt.Sprint(now.Add(d).Unix()) }

func TestVerifyAcceptsSignedCallbacks(t *testing.T) {
	a, b, other := secret("a"), secret("b"), secret("x")
	body := `{"type":"payment.succeeded"}`
	for name, c := range map[string]struct{ secrets, id, timestamp, signature string }{
		"one secret":           {a, "msg_1", at(0), sign(t, a, "msg_1", at(0), body)},
		"the second of two":    {a + " " + b, "msg_1", at(0), sign(t, b, "msg_1", at(0), body)},
		"the first, by commas": {a + "," + b, "msg_1", at(0), sign(t, a, "msg_1", at(0), body)},
		"two signatures": {b, "msg_1", at(0), sign(t, other, "msg_1", at(0), body) + " " + sign(t, b, "msg_1", at(0),
			body)},
		"another version too": {b, "msg_1", at(0), "v1a,AAAA v2,x " + sign(t, b, "msg_1", at(0), body)},
		"five minutes old":    {a, "msg_1", at(-Tolerance), sign(t, a, "msg_1", at(-Tolerance), body)},
		"five minutes ahead":  {a, "msg_1", at(Tolerance), sign(t, a, "msg_1", at(Tolerance), body)},
		"an id of symbols":    {a, "!~_-:/", at(0), sign(t, a, "!~_-:/", at(0), body)},
	} {
		if err := verifier(t, c.secrets).Verify(c.id, c.timestamp, c.signature, []byte(body)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVerifyRejectsInvalidCallbacks(t *testing.T) {
	a := secret("a")
	body := `{"type":"payment.succeeded"}`
	good := sign(t, a, "msg_1", at(0), body)
	for name, c := range map[string]struct {
		id, timestamp, signature, body string
		want                           error
	}{
		"another secret":  {"msg_1", at(0), sign(t, secret("b"), "msg_1", at(0), body), body, ErrForged},
		"another body":    {"msg_1", at(0), good, body + " ", ErrForged},
		"another id":      {"msg_2", at(0), good, body, ErrForged},
		"another second":  {"msg_1", at(time.Second), good, body, ErrForged},
		"no signature":    {"msg_1", at(0), "", body, ErrForged},
		"no version":      {"msg_1", at(0), strings.TrimPrefix(good, "v1,"), body, ErrForged},
		"another version": {"msg_1", at(0), "v2" + strings.TrimPrefix(good, "v1"), body, ErrForged},
		"a part of it":    {"msg_1", at(0), good[:len(good)-1], body, ErrForged},
		"in URL-safe base64": {"msg_1", at(0), "v1," + strings.NewReplacer("+", "-", "/", "_", "=",
			"").Replace(good[3:]), body, ErrForged},
		"a signature too long": {"msg_1", at(0), strings.Repeat("v1,x ", 1000) + good, body, ErrForged},
		"no id":                {"", at(0), sign(t, a, "", at(0), body), body, ErrID},
		"an id too long": {strings.Repeat("x", 256), at(0), sign(t, a, strings.Repeat("x", 256), at(0), body), body,
			ErrID},
		"an id with a line end":  {"a\nb", at(0), sign(t, a, "a\nb", at(0), body), body, ErrID},
		"an id with a full stop": {"a.1", at(0), sign(t, a, "a.1", at(0), body), body, ErrID},
		"no second":              {"msg_1", "", sign(t, a, "msg_1", "", body), body, ErrTimestamp},
		"a second with a plus":   {"msg_1", "+" + at(0), good, body, ErrTimestamp},
		"a second with zeros":    {"msg_1", "0" + at(0), good, body, ErrTimestamp},
		"a second as a float":    {"msg_1", at(0) + ".0", sign(t, a, "msg_1", at(0)+".0", body), body, ErrTimestamp},
		"too old": {"msg_1", at(-Tolerance - time.Second), sign(t, a, "msg_1", at(-Tolerance-time.Second),
			body), body, ErrStale},
		"too new": {"msg_1", at(Tolerance + time.Second), sign(t, a, "msg_1", at(Tolerance+time.Second),
			body), body, ErrStale},
		"the end of time": {"msg_1", "9223372036854775807", sign(t, a, "msg_1", "9223372036854775807", body), body,
			ErrStale},
		"the beginning of time": {"msg_1", "-9223372036854775808", sign(t, a, "msg_1", "-9223372036854775808", body), body,
			ErrStale},
	} {
		if err := verifier(t, a).Verify(c.id, c.timestamp, c.signature, []byte(c.body)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestNewVerifierRejectsInvalidSecretWithoutPrintingIt(t *testing.T) {
	short := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23))
	long := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65))
	for _, secrets := range []string{"", " , ", "hunter2hunter2hunter2hunter2hunter2", "whsec_%%%", short, long,
		secret("a") + " " + short, strings.TrimPrefix(secret("a"), "whsec_")} {
		_, err := NewVerifier(secrets, time.Now)
		if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("secrets %q: %v", secrets, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	a := secret("a")
	f.Add("msg_1", at(0), sign(f, a, "msg_1", at(0), "{}"), []byte("{}"))
	f.Add("", "", "v1,", []byte(nil))
	v := verifier(f, a)
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		if err := v.Verify(id, timestamp, signature, body); err == nil &&
			!strings.Contains(signature, sign(t, a, id, timestamp, string(body))) {
			t.Errorf("accepted id %q, second %q, signature %q", id, timestamp, signature)
		}
	})
}

// The callback in the documentation is valid, and the command that signs it uses the same parts.
func TestDocumentedCallbackIsValid(t *testing.T) {
	text, err := os.ReadFile("../../docs/orders.md")
	if err != nil {
		t.Fatal(err)
	}
	part := func(pattern string) string {
		t.Helper()
		found := regexp.MustCompile(`(?m)^`+pattern+`$`).FindAllStringSubmatch(string(text), -1)
		if len(found) != 1 {
			t.Fatalf("%d lines match %s", len(found), pattern)
		}
		return found[0][1]
	}
	id, timestamp, signature := part("webhook-id: (.+)"), part("webhook-timestamp: (.+)"), part("webhook-signature: (.+)")
	body := part(`(\{"type":.+\})`)
	sent, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewVerifier(part("secret=(.+)"), func() time.Time { return time.Unix(sent, 0) })
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Verify(id, timestamp, signature, []byte(body)); err != nil {
		t.Error(err)
	}
	if part("id=(.+)") != id || part("timestamp=(.+)") != timestamp || part("body='(.+)'") != body {
		t.Error("the command signs another callback")
	}
}
