package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// answer is an HTTP response; its status is 0 if there was none.
type answer struct {
	status   int
	replayed bool
	body     []byte

	OrderID string `json:"order_id"`
	Code    string `json:"code"`
}

var client = &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 256}}

func call(ctx context.Context, method, url, bearer, body, key string) answer {
	return callBy(ctx, client, method, url, bearer, body, key)
}

func callBy(ctx context.Context, client *http.Client, method, url, bearer, body, key string) answer {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{}
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", fmt.Sprintf("%q", key))
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}
	}
	defer resp.Body.Close()
	var a answer
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		return answer{}
	}
	_ = json.Unmarshal(a.body, &a)
	a.status, a.replayed = resp.StatusCode, resp.Header.Get("Idempotency-Replayed") == "true"
	return a
}
