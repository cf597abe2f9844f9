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
info: { title: Things, version: "1" }
paths:
  /things/{id}:
    parameters: [{ name: id, in: path, required: true, schema: { type: string, pattern: "^[a-z]+$" } }]
    get:
      parameters: [{ name: limit, in: query, schema: { type: integer, maximum: 9 } }]
      responses:
        "200":
          description: The thing
          headers: { Location: { required: true, schema: { type: string, pattern: "^/" } } }
          content: { application/json: { schema: { $ref: "#/components/schemas/Thing" } } }
    post:
      requestBody:
        required: true
        content:
          application/json:
            schema: { type: object, required: [a], additionalProperties: false, properties: { a: { type: integer } } }
      responses: { "204": { description: Done } }
  /things/all:
    get:
      responses:
        "200":
          description: All things
          content:
            text/event-stream: { schema: { type: string }, x-events: { tick: { $ref: "#/components/schemas/Tick" } } }
components:
  schemas:
    Tick: { type: integer }
    Kind: { type: string, enum: [small, large] }
    Thing:
      type: object
      additionalProperties: false
      required: [n]
      properties:
        n: { type: integer }
        kind: { $ref: "#/components/schemas/Kind" }
        ok: { const: true }
        at: { type: [string, "null"], format: date-time }
        size: { oneOf: [{ type: "null" }, { type: object, required: [w], properties: { w: { type: number } } }] }
    Problem: { type: object, required: [code], properties: { code: { enum: ["no"] } } }
`

func load(t *testing.T) *Contract {
	t.Helper()
	c, err := New([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// get is a successful GET of a thing.
func get(body string) Exchange {
	return Exchange{
		Method: "GET", Path: "/things/a", Status: 200, ResponseBody: []byte(body),
		ResponseHeader: http.Header{"Content-Type": {"application/json"}, "Location": {"/x"}},
	}
}

// post is a POST to a thing that succeeds without a response body.
func post(body string) Exchange {
	return Exchange{Method: "POST", Path: "/things/a", RequestBody: []byte(body), Status: 204}
}

// refusal is a problem response.
func refusal(path string, status int, body string) Exchange {
	return Exchange{
		Method: "GET", Path: path, Status: status, ResponseBody: []byte(body),
		ResponseHeader: http.Header{"Content-Type": {"application/problem+json"}},
	}
}

func with(x Exchange, change func(*Exchange)) Exchange {
	x.ResponseHeader = x.ResponseHeader.Clone()
	change(&x)
	return x
}

func TestCheckAcceptsDocumentedExchanges(t *testing.T) {
	c := load(t)
	for name, x := range map[string]Exchange{
		"query parameter":   with(get(`{"n":1}`), func(x *Exchange) { x.Path += "?limit=3" }),
		"HEAD without body": with(get(``), func(x *Exchange) { x.Method = "HEAD" }),
		"optional fields":   get(`{"n":1,"kind":"small","ok":true,"at":"2026-11-27T10:00:00Z","size":{"w":1.5}}`),
		"null fields":       get(`{"n":1,"at":null,"size":null}`),
		"problem":           refusal("/things/A", 400, `{"code":"no"}`),
		"unknown path":      refusal("/other", 404, `{"code":"no"}`),
		"request body":      post(`{"a":1}`),
	} {
		if err := c.Check(x); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckReportsDeviations(t *testing.T) {
	c := load(t)
	for _, test := range []struct {
		name string
		x    Exchange
		want string
	}{
		{"type", get(`{"n":"1"}`), "not as documented"},
		{"undocumented field", get(`{"n":1,"m":1}`), "not as documented"},
		{"missing field", get(`{}`), "not as documented"},
		{"enum", get(`{"n":1,"kind":"huge"}`), "not as documented"},
		{"const", get(`{"n":1,"ok":false}`), "not as documented"},
		{"format", get(`{"n":1,"at":"yesterday"}`), "not as documented"},
		{"no branch of oneOf", get(`{"n":1,"size":{}}`), "not as documented"},
		{"invalid JSON", get(`{`), "not as documented"},
		{
			"media type",
			with(get(`{"n":1}`), func(x *Exchange) { x.ResponseHeader.Set("Content-Type", "text/html") }), `"text/html"`,
		},
		{"status", with(get(`{"n":1}`), func(x *Exchange) { x.Status = 201 }), "does not document this status"},
		{
			"missing header",
			with(get(`{"n":1}`), func(x *Exchange) { x.ResponseHeader.Del("Location") }), `"Location" missing`,
		},
		{
			"header value",
			with(get(`{"n":1}`), func(x *Exchange) { x.ResponseHeader.Set("Location", "x") }), `"Location" doesn't match`,
		},
		{
			"undocumented header",
			with(post(`{"a":1}`), func(x *Exchange) { x.ResponseHeader = http.Header{"Retry-After": {"1"}} }),
			"does not document the header Retry-After",
		},
		{"undocumented body", with(post(`{"a":1}`), func(x *Exchange) { x.ResponseBody = []byte("x") }), "has a body"},
		{"problem", refusal("/things/a", 500, `oh`), "not a problem"},
		{"problem code", refusal("/things/a", 500, `{"code":"yes"}`), "not a problem"},
		{"path", with(get(`{"n":1}`), func(x *Exchange) { x.Path = "/other" }), "this path and method"},
		{"method", with(get(`{"n":1}`), func(x *Exchange) { x.Method = "PUT" }), "this path and method"},
		{"path parameter", with(get(`{"n":1}`), func(x *Exchange) { x.Path = "/things/%41" }), `parameter "id"`},
		{"query parameter", with(get(`{"n":1}`), func(x *Exchange) { x.Path += "?limit=10" }), `parameter "limit"`},
		{"request body", post(`{}`), "accepted an undocumented request"},
		{"undocumented request field", post(`{"a":1,"b":1}`), "accepted an undocumented request"},
		{"missing request body", post(``), "accepted an undocumented request"},
		{
			"request body of GET",
			with(get(`{"n":1}`), func(x *Exchange) { x.RequestBody = []byte(`{}`) }), "accepted an undocumented request",
		},
	} {
		if err := c.Check(test.x); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}

func TestNewRejectsInvalidDocuments(t *testing.T) {
	for name, change := range map[string][2]string{
		"unresolved reference": {"schemas/Kind", "schemas/None"},
		"path parameter":       {"name: id", "name: other"},
		"comma outside quotes": {"description: Done", "description: Done, with a comma"},
		"example":              {"Tick: { type: integer", "Tick: { type: integer, example: x"},
		"examples":             {"Tick: { type: integer", "Tick: { type: integer, examples: [x]"},
	} {
		if _, err := New([]byte(strings.Replace(document, change[0], change[1], 1))); err == nil {
			t.Errorf("%s: New returned no error", name)
		}
	}
}

func TestTransportChecksResponsesAndEvents(t *testing.T) {
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
	client := &http.Client{Transport: &Transport{
		Contract: load(t), Base: s.Client().Transport, Report: func(err error) { reported = append(reported, err.Error()) },
	}}
	for _, call := range []struct{ method, path, body, want string }{
		{"GET", "/things/a", "", `{"n":true}`}, {"POST", "/things/a", "{}", ""}, {"GET", "/things/all", "", ": hello"},
	} {
		req, err := http.NewRequest(call.method, s.URL+call.path, strings.NewReader(call.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || !strings.HasPrefix(string(got), call.want) {
			t.Errorf("%s %s: got %q, %v, want %q", call.method, call.path, got, err, call.want)
		}
		resp.Body.Close()
	}
	want := []string{"not as documented", "accepted an undocumented request", "the event tick", `the event "tock"`}
	if len(reported) != len(want) {
		t.Fatalf("got %d reports, want %d: %q", len(reported), len(want), reported)
	}
	for i, text := range want {
		if !strings.Contains(reported[i], text) {
			t.Errorf("report %d: got %q, want %q", i, reported[i], text)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	c, err := Load()
	if err != nil {
		b.Fatal(err)
	}
	x := Exchange{
		Method: "GET", Path: "/v1/sales/drop", Status: 200,
		ResponseHeader: http.Header{"Content-Type": {"application/json"}},
		ResponseBody: []byte(`{"id":"drop","title":"Tea","price":{"amount":1999,"currency":"EUR"},"stock":100,"left":42,` +
			`"per_buyer":1,"state":"open","opens_at":"2026-11-27T10:00:00Z","closes_at":null}`),
	}
	for b.Loop() {
		if err := c.Check(x); err != nil {
			b.Fatal(err)
		}
	}
}
