package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const secretBytes = 32

// NewSecret returns a new secret: "whsec_" and 32 random bytes in base64.
func NewSecret() string {
	key := make([]byte, secretBytes)
	_, _ = rand.Read(key) // it cannot fail
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// sign sets the headers of Standard Webhooks, with a signature for each secret, newest first. It skips empty secrets.
// Errors never contain a secret.
func sign(h http.Header, id string, at time.Time, body string, secrets ...string) error {
	var signatures []string
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		hook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			return fmt.Errorf("webhook: the secret of the endpoint cannot be read; rotate it")
		}
		signature, err := hook.Sign(id, at, []byte(body))
		if err != nil {
			return fmt.Errorf("webhook: sign: %w", err)
		}
		signatures = append(signatures, signature)
	}
	h.Set(standardwebhooks.HeaderWebhookID, id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}
