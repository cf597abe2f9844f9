// Package contract holds traffic against docs/openapi.yaml: an answer must be one that the document lists, and a request that was accepted must be one that
// it allows. Tests put it between themselves and the servers they talk to; the program has no part of it.
package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"sluice/docs"
	"sluice/internal/openapi"
)

// Exchange is a request and its answer. The path has the query.
type Exchange struct {
	Method, Path string
	Asked        http.Header
	Sent         []byte
	Status       int
	Header       http.Header
	Body         []byte
}

func (x Exchange) String() string { return fmt.Sprintf("%s %s: %d", x.Method, x.Path, x.Status) }

// Contract is a document to check traffic against. It is safe for concurrent use.
type Contract struct {
	doc    *openapi.Document
	routes []route

	mu       sync.Mutex // of the rest
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by pointer
}

type route struct {
	parts []string
	openapi.Operation
}

// Load reads docs/openapi.yaml, once.
var Load = sync.OnceValues(func() (*Contract, error) { return New(docs.OpenAPI) })

const documentURL = "file:///openapi.json"

// New reads a document.
func New(text []byte) (*Contract, error) {
	doc, err := openapi.Parse(text)
	if err != nil {
		return nil, err
	}
	asJSON, err := json.Marshal(doc.Root().Any())
	if err != nil {
		return nil, fmt.Errorf("contract: %w", err)
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return nil, fmt.Errorf("contract: %w", err)
	}
	c := &Contract{doc: doc, compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource(documentURL, root); err != nil {
		return nil, fmt.Errorf("contract: %w", err)
	}
	for op := range doc.Operations() {
		c.routes = append(c.routes, route{strings.Split(op.Path, "/"), op})
	}
	return c, nil
}

// Document is what traffic is checked against.
func (c *Contract) Document() *openapi.Document { return c.doc }

// Compile checks that a place is a schema.
func (c *Contract) Compile(v openapi.Value) error {
	_, err := c.schema(v)
	return err
}

func (c *Contract) schema(v openapi.Value) (*jsonschema.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.schemas[v.Pointer]; ok {
		return s, nil
	}
	s, err := c.compiler.Compile(documentURL + "#" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(v.Pointer))
	if err == nil {
		c.schemas[v.Pointer] = s
	}
	return s, err
}

// Valid checks a JSON text against the schema at a place.
func (c *Contract) Valid(schema openapi.Value, text []byte) error {
	s, err := c.schema(schema)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// Find is the operation that a path without a query belongs to. What is written in the document goes before what is a parameter there.
func (c *Contract) Find(method, path string) (op openapi.Operation, parameters map[string]string, found bool) {
	parts, best := strings.Split(path, "/"), -1
	for _, r := range c.routes {
		if given, literal, ok := r.match(method, parts); ok && literal > best {
			op, parameters, found, best = r.Operation, given, true, literal
		}
	}
	return op, parameters, found
}

func (r route) match(method string, parts []string) (given map[string]string, literal int, ok bool) {
	if r.Method != method || len(r.parts) != len(parts) {
		return nil, 0, false
	}
	given = map[string]string{}
	for i, want := range r.parts {
		name, isParameter := strings.CutPrefix(want, "{")
		switch {
		case want == parts[i]:
			literal++
		case !isParameter || parts[i] == "":
			return nil, 0, false
		default:
			text, err := url.PathUnescape(parts[i])
			if err != nil {
				return nil, 0, false
			}
			given[strings.TrimSuffix(name, "}")] = text
		}
	}
	return given, literal, true
}

// everywhere are the statuses that any route may answer without listing them, always as a problem: 429 and 503 are the edges'.
var everywhere = []int{400, 404, 405, 408, 413, 429, 431, 500, 503}

// listed are the headers that the document must list for a response that has them.
var listed = []string{"Location", "Retry-After", "WWW-Authenticate", "RateLimit", "RateLimit-Policy", "Idempotency-Replayed"}

// Check returns all deviations of an exchange from the document as one error. HEAD is checked as GET without a body.
func (c *Contract) Check(x Exchange) error {
	path, query, _ := strings.Cut(x.Path, "?")
	head := x.Method == http.MethodHead
	if head {
		x.Method = http.MethodGet
	}
	op, given, found := c.Find(x.Method, path)
	var bad []error
	wrong := func(format string, args ...any) {
		bad = append(bad, fmt.Errorf("%s: "+format, append([]any{x}, args...)...))
	}

	status := strconv.Itoa(x.Status)
	response := op.Get("responses").Get(status)
	switch {
	case response.Exists():
		c.checkResponse(x, response, head, wrong)
	case !slices.Contains(everywhere, x.Status) && found:
		wrong("docs/openapi.yaml has no %s for %s %s", status, op.Method, op.Path)
	case !slices.Contains(everywhere, x.Status):
		wrong("docs/openapi.yaml has no such path")
	case !head:
		if err := c.Valid(c.doc.At("components", "schemas", "Problem"), x.Body); err != nil {
			wrong("the answer is no problem: %v\n%s", err, x.Body)
		}
	}
	if found && x.Status < 400 {
		c.checkRequest(x, op, given, query, wrong)
	}
	return errors.Join(bad...)
}

// CheckEvent returns the deviations of an event of a stream.
func (c *Contract) CheckEvent(x Exchange, name string, data []byte) error {
	path, _, _ := strings.Cut(x.Path, "?")
	op, _, _ := c.Find(x.Method, path)
	schema := op.Get("responses").Get(strconv.Itoa(x.Status)).Get("content").Get("text/event-stream").Get("x-events").Get(name)
	if !schema.Exists() {
		return fmt.Errorf("%s: docs/openapi.yaml has no event %q there", x, name)
	}
	if err := c.Valid(schema, data); err != nil {
		return fmt.Errorf("%s: the event %s is not as documented: %w\n%s", x, name, err, data)
	}
	return nil
}

type complaint func(format string, args ...any)

func (c *Contract) checkResponse(x Exchange, response openapi.Value, head bool, wrong complaint) {
	media, _, _ := strings.Cut(x.Header.Get("Content-Type"), ";")
	content := response.Get("content")
	switch schema := content.Get(media).Get("schema"); {
	case head:
	case !content.Exists():
		if len(x.Body) > 0 {
			wrong("it has a body, and docs/openapi.yaml has none")
		}
	case !schema.Exists():
		wrong("docs/openapi.yaml has no %q there", media)
	case strings.HasSuffix(media, "json"):
		if err := c.Valid(schema, x.Body); err != nil {
			wrong("not as documented: %v\n%s", err, x.Body)
		}
	}
	headers := response.Get("headers")
	for name, h := range headers.Fields() {
		if h.Get("required").Is() && x.Header.Get(name) == "" {
			wrong("it lacks the header %s", name)
		}
		if value := x.Header.Get(name); value != "" {
			if err := c.validText(h.Get("schema"), value); err != nil {
				wrong("the header %s: %v", name, err)
			}
		}
	}
	// What an edge adds to any answer is described once, for all.
	for _, name := range listed {
		fromEdge := strings.HasPrefix(name, "RateLimit") && x.Header.Get("X-Request-Id") != ""
		if !headers.Get(name).Exists() && x.Header.Get(name) != "" && !fromEdge {
			wrong("docs/openapi.yaml does not list its header %s", name)
		}
	}
}

func (c *Contract) checkRequest(x Exchange, op openapi.Operation, path map[string]string, rawQuery string, wrong complaint) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		wrong("the query: %v", err)
	}
	for _, p := range op.Parameters() {
		name, values := p.Get("name").Text(), []string(nil)
		switch p.Get("in").Text() {
		case "path":
			values = []string{path[name]}
		case "query":
			values = query[name]
			delete(query, name)
		case "header":
			values = x.Asked.Values(name)
		}
		if len(values) == 0 && p.Get("required").Is() {
			wrong("it was accepted without the parameter %s", name)
		}
		for _, value := range values {
			if err := c.validText(p.Get("schema"), value); err != nil {
				wrong("it was accepted with %s=%q: %v", name, value, err)
			}
		}
	}
	body := op.Get("requestBody")
	switch {
	case len(x.Sent) == 0 && body.Get("required").Is():
		wrong("it was accepted without a body")
	case len(x.Sent) > 0 && body.Get("content").Get("application/json").Exists(): // forms are for people
		if err := c.Valid(body.Get("content").Get("application/json").Get("schema"), x.Sent); err != nil {
			wrong("it was accepted with a body that docs/openapi.yaml does not allow: %v\n%s", err, x.Sent)
		}
	}
}

// validText checks a parameter, which comes as text whatever its type is.
func (c *Contract) validText(schema openapi.Value, text string) error {
	if !schema.Exists() {
		return errors.New("it has no schema")
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return err
	}
	kind := schema.Get("type").Text()
	if kind == "integer" || kind == "number" || kind == "boolean" {
		quoted = []byte(text)
	}
	return c.Valid(schema, quoted)
}
