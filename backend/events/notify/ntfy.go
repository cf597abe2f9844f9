package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
)

// ntfyAdapter publishes to a topic of an ntfy server, as JSON, so that no text is ever a header.
type ntfyAdapter struct {
	common
	client *http.Client
	url    string // of the server
	auth   string // Authorization; may be ""
	topic  string // with {buyer} for the buyer
}

func newNtfy(c common, s *settings, u *url.URL, _ *slog.Logger) (Adapter, error) {
	scheme := "https"
	if u.Scheme == "ntfy+http" {
		scheme = "http"
	}
	a := &ntfyAdapter{common: c, topic: strings.TrimPrefix(u.Path, "/")}
	if u.Host == "" {
		return nil, errNoHost
	}
	if u.Fragment != "" || !validTopic(strings.ReplaceAll(a.topic, buyerMark, "x")) {
		return nil, errors.New("the topic must be 1 to 64 letters, digits, - and _, with {buyer} for the buyer: ntfy://host/topic")
	}
	a.url = (&url.URL{Scheme: scheme, Host: u.Host, Path: "/"}).String()
	token := s.take("token", "")
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the token must be printable")
	}
	switch {
	case token != "" && u.User != nil:
		return nil, errors.New("takes a token or a user, not both")
	case token != "":
		a.auth = "Bearer " + token
	case u.User != nil:
		password, _ := u.User.Password()
		req := http.Request{Header: http.Header{}}
		req.SetBasicAuth(u.User.Username(), password)
		a.auth = req.Header.Get("Authorization")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxConnsPerHost = concurrency
	a.client = &http.Client{
		Transport: transport, Timeout: sendTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the address is the operator's, and no answer may change it
	}
	return a, nil
}

func validTopic(t string) bool {
	return t != "" && len(t) <= 64 && strings.Trim(t, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

// Send is Adapter.
func (a *ntfyAdapter) Send(ctx context.Context, m Message) error {
	topic := strings.ReplaceAll(a.topic, buyerMark, m.Buyer)
	if !validTopic(topic) {
		return fmt.Errorf("%w: the buyer makes no topic", ErrPermanent)
	}
	text := m.Text(a.lang)
	body, err := json.Marshal(map[string]any{"topic": topic, "title": text.Title, "message": text.Body, "tags": []string{m.ID}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if a.auth != "" {
		req.Header.Set("Authorization", a.auth)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // so that the connection can be used again
	switch s := resp.StatusCode; {
	case s >= 200 && s < 300:
		return nil
	case s == http.StatusBadRequest, s == http.StatusRequestEntityTooLarge: // the message is at fault, and not the server's settings
		return fmt.Errorf("%w: ntfy answers %d", ErrPermanent, s)
	default:
		return fmt.Errorf("ntfy answers %d", s)
	}
}

// maxAnswer is how many bytes of an answer are read.
const maxAnswer = 4 << 10
