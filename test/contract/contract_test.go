package contract

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const document = `
openapi: 3.1.0
paths:
  /things/{id}:
    parameters: [{ name: id, in: path, required: true, schema: { type: string, pattern: "^[a-z]+$" } }]
    get:
      parameters: [{ name: limit, in: query, schema: { type: integer, maximum: 9 } }]
      responses:
        "200":
          description: It
          headers: { Location: { required: true, schema: { type: string } } }
          content: { application/json: { schema: { type: object, additionalProperties: false, required: [n], properties: { n: { type: integer } } } } }
    post:
      requestBody: { required: true, content: { application/json: { schema: { type: object, required: [a] } } } }
      responses: { "204": { description: Done } }
  /things/all:
    get:
      responses:
        "200": { description: All, content: { text/event-stream: { schema: { type: string }, x-events: { tick: { type: integer } } } } }
components:
  schemas:
    Problem: { type: object, required: [code], properties: { code: { enum: [no] } } }
`

func load(t *testing.T) *Contract {
	t.Helper()
	c, err := New([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each way to leave the contract is noticed, and what keeps it is not.
func TestCheck(t *testing.T) {
	c := load(t)
	asJSON := http.Header{"Content-Type": {"application/json"}, "Location": {"/x"}}
	problem := http.Header{"Content-Type": {"application/problem+json"}}
	for _, x := range []struct {
		name string
		Exchange
		wrong string // "" for what keeps the contract
	}{
		{"good", Exchange{Method: "GET", Path: "/things/a?limit=3", Status: 200, Header: asJSON, Body: []byte(`{"n":1}`)}, ""},
		{"HEAD", Exchange{Method: "HEAD", Path: "/things/a", Status: 200, Header: asJSON}, ""},
		{"a refusal", Exchange{Method: "GET", Path: "/things/A", Status: 400, Header: problem, Body: []byte(`{"code":"no"}`)}, ""},
		{"nothing there", Exchange{Method: "GET", Path: "/other", Status: 404, Header: problem, Body: []byte(`{"code":"no"}`)}, ""},
		{"good, with a body", Exchange{Method: "POST", Path: "/things/a", Sent: []byte(`{"a":1}`), Status: 204}, ""},
		{"another body", Exchange{Method: "GET", Path: "/things/a", Status: 200, Header: asJSON, Body: []byte(`{"n":"1"}`)}, "not as documented"},
		{"one field more", Exchange{Method: "GET", Path: "/things/a", Status: 200, Header: asJSON, Body: []byte(`{"n":1,"m":1}`)}, "not as documented"},
		{"no JSON", Exchange{Method: "GET", Path: "/things/a", Status: 200, Header: asJSON, Body: []byte(`{`)}, "not as documented"},
		{"another type", Exchange{Method: "GET", Path: "/things/a", Status: 200, Header: http.Header{"Content-Type": {"text/html"}, "Location": {"/x"}}}, `no "text/html"`},
		{"another status", Exchange{Method: "GET", Path: "/things/a", Status: 201, Header: asJSON}, "has no 201"},
		{"no header", Exchange{Method: "GET", Path: "/things/a", Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"n":1}`)}, "lacks the header Location"},
		{"a header that is not listed", Exchange{Method: "POST", Path: "/things/a", Sent: []byte(`{"a":1}`), Status: 204, Header: http.Header{"Retry-After": {"1"}}}, "does not list its header Retry-After"},
		{"a body where there is none", Exchange{Method: "POST", Path: "/things/a", Sent: []byte(`{"a":1}`), Status: 204, Body: []byte("x")}, "it has a body"},
		{"a refusal in other words", Exchange{Method: "GET", Path: "/things/a", Status: 500, Body: []byte(`oh`)}, "no problem"},
		{"no such path", Exchange{Method: "GET", Path: "/other", Status: 200, Header: asJSON}, "no such path"},
		{"no such method", Exchange{Method: "PUT", Path: "/things/a", Status: 200}, "no such path"},
		{"a parameter of the path", Exchange{Method: "GET", Path: "/things/%41", Status: 200, Header: asJSON, Body: []byte(`{"n":1}`)}, `accepted with id="A"`},
		{"a parameter of the query", Exchange{Method: "GET", Path: "/things/a?limit=10", Status: 200, Header: asJSON, Body: []byte(`{"n":1}`)}, `accepted with limit="10"`},
		{"a body that is not allowed", Exchange{Method: "POST", Path: "/things/a", Sent: []byte(`{}`), Status: 204}, "accepted with a body"},
		{"a body that is missing", Exchange{Method: "POST", Path: "/things/a", Status: 204}, "accepted without a body"},
	} {
		err := c.Check(x.Exchange)
		if x.wrong == "" && err != nil || x.wrong != "" && (err == nil || !strings.Contains(err.Error(), x.wrong)) {
			t.Errorf("%s: %v, want %q", x.name, err, x.wrong)
		}
	}
}

// What goes through a Transport arrives as it was, and is checked.
func TestTransport(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		switch {
		case r.URL.Path == "/things/all":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, ": hello\n\nevent: tick\ndata: 1\n\nevent: tick\ndata: x\n\nevent: tock\ndata: 1\n\n")
		case r.Method == "POST" && string(sent) == `{}`:
			w.WriteHeader(204)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "/x")
			fmt.Fprint(w, `{"n":true}`)
		}
	}))
	defer s.Close()
	var reported []string
	client := &http.Client{Transport: &Transport{Contract: load(t), Base: s.Client().Transport, Report: func(err error) { reported = append(reported, err.Error()) }}}
	for _, ask := range []struct{ method, path, body, want string }{{"GET", "/things/a", "", `{"n":true}`}, {"POST", "/things/a", "{}", ""}, {"GET", "/things/all", "", ": hello"}} {
		req, err := http.NewRequest(ask.method, s.URL+ask.path, strings.NewReader(ask.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || !strings.HasPrefix(string(got), ask.want) {
			t.Errorf("%s %s: %q, %v", ask.method, ask.path, got, err)
		}
		resp.Body.Close()
	}
	if len(reported) != 4 || !strings.Contains(reported[0], "not as documented") || !strings.Contains(reported[1], "accepted with a body") ||
		!strings.Contains(reported[2], "the event tick") || !strings.Contains(reported[3], `no event "tock"`) {
		t.Errorf("reported: %q", reported)
	}
}

func BenchmarkCheck(b *testing.B) {
	c, err := Load()
	if err != nil {
		b.Fatal(err)
	}
	x := Exchange{
		Method: "GET", Path: "/v1/sales/drop", Status: 200, Header: http.Header{"Content-Type": {"application/json"}},
		Body: []byte(`{"id":"drop","title":"Tea","price":{"amount":1999,"currency":"EUR"},"stock":100,"left":42,"per_buyer":1,"state":"open","opens_at":"2026-11-27T10:00:00Z","closes_at":null}`),
	}
	for b.Loop() {
		if err := c.Check(x); err != nil {
			b.Fatal(err)
		}
	}
}
