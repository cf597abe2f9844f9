// Package contract validates HTTP traffic against docs/openapi.yaml. Tests put it between a client and a server; the
// program does not use it. A response must be documented, and a request that the server accepted must be valid.
//
// github.com/getkin/kin-openapi loads the document, finds the operation of a request and validates parameters and
// response headers. github.com/santhosh-tekuri/jsonschema validates bodies, with schemas that are compiled once:
// kin-openapi compiles the schema of a body for each body. This package adds the rules that neither covers:
//
//   - The document lists statuses that every route may answer once, in its description; see commonStatuses.
//   - A response must not have headers of listedHeaders, or a body, that its operation does not document.
//   - The events of a stream have schemas, under the extension x-events.
//   - The examples of named schemas are valid.
package contract

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"sluice/docs"
)

// Exchange is a request and its response. Path includes the query.
type Exchange struct {
	Method, Path   string
	RequestHeader  http.Header
	RequestBody    []byte
	Status         int
	ResponseHeader http.Header
	ResponseBody   []byte
}

func (x Exchange) String() string { return fmt.Sprintf("%s %s: %d", x.Method, x.Path, x.Status) }

// Contract is an OpenAPI document that traffic is validated against. It is safe for concurrent use.
type Contract struct {
	Document *openapi3.T // read only
	router   routers.Router
	schemas  *schemas
}

// Load parses docs/openapi.yaml once.
var Load = sync.OnceValues(func() (*Contract, error) { return New(docs.OpenAPI) })

// New parses and validates a document, including its examples.
func New(text []byte) (*Contract, error) {
	loader := openapi3.NewLoader()
	loader.IncludeOrigin = true // for the order of operations
	doc, err := loader.LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("contract: load: %w", err)
	}
	if err := doc.Validate(loader.Context, openapi3.EnableMultiError()); err != nil {
		return nil, fmt.Errorf("contract: the document is not valid OpenAPI: %w", err)
	}
	all, err := newSchemas(doc)
	if err != nil {
		return nil, fmt.Errorf("contract: %w", err)
	}
	for name, schema := range doc.Components.Schemas {
		for _, example := range schema.Value.Examples {
			if err := all.validate(named(name), example); err != nil {
				return nil, fmt.Errorf("contract: an example of the schema %s is not valid: %w", name, err)
			}
		}
	}
	doc.Servers = nil     // any address of a test server matches
	doc.OpenAPI = "3.0.3" // kin-openapi validates parameters and headers without compiling their schemas
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		return nil, fmt.Errorf("contract: routes: %w", err)
	}
	return &Contract{doc, router, all}, nil
}

// Operation is one method of one path.
type Operation struct {
	Method, Path string
	*openapi3.Operation
	Item *openapi3.PathItem
}

// Operations returns all operations in the order of the document.
func (c *Contract) Operations() []Operation {
	var all []Operation
	for path, item := range c.Document.Paths.Map() {
		for method, op := range item.Operations() {
			all = append(all, Operation{method, path, op, item})
		}
	}
	slices.SortFunc(all, func(a, b Operation) int { return a.Origin.Key.Line - b.Origin.Key.Line })
	return all
}

// commonStatuses are the problem responses that any route may return without listing them. 429 and 503 come from edges.
var commonStatuses = []int{400, 404, 405, 408, 413, 429, 431, 500, 503}

// listedHeaders are the response headers that an operation must document when it sends them.
var listedHeaders = []string{
	"Location", "Retry-After", "WWW-Authenticate", "RateLimit", "RateLimit-Policy", "Idempotency-Replayed",
}

// options validate every part of an exchange but the bodies and report all errors. Tests of the server cover
// authentication.
func options() *openapi3filter.Options {
	o := &openapi3filter.Options{
		MultiError: true, IncludeResponseStatus: true, ExcludeRequestBody: true, ExcludeResponseBody: true,
		SkipSettingDefaults: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
	}
	o.WithCustomSchemaErrorFunc(func(err *openapi3.SchemaError) string { return err.Reason }) // without the schema
	return o
}

// Check returns every deviation of an exchange from the document, joined. A HEAD request is validated as GET, without
// a response body. Requests are validated only if the server accepted them, with a status below 400.
func (c *Contract) Check(x Exchange) error {
	input, err := c.find(x)
	if err != nil {
		if !slices.Contains(commonStatuses, x.Status) {
			return fmt.Errorf("%s: docs/openapi.yaml does not document this path and method: %w", x, err)
		}
		return c.checkProblem(x)
	}
	var found []error
	if err := c.checkResponse(x, input); err != nil {
		found = append(found, err)
	}
	if x.Status < 400 {
		err := errors.Join(
			openapi3filter.ValidateRequest(context.Background(), input),
			c.checkRequestBody(x, input.Route),
		)
		if err != nil {
			found = append(found, fmt.Errorf("%s: the server accepted an undocumented request: %w", x, err))
		}
	}
	return errors.Join(found...)
}

// find returns the operation that serves a request.
func (c *Contract) find(x Exchange) (*openapi3filter.RequestValidationInput, error) {
	method := x.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	path, query, _ := strings.Cut(x.Path, "?")
	if path != "/" {
		path = strings.TrimSuffix(path, "/") // the document lists paths without it
	}
	req, err := http.NewRequestWithContext(context.Background(), method, "http://localhost"+path+"?"+query, nil)
	if err != nil {
		return nil, err
	}
	if x.RequestHeader != nil {
		req.Header = x.RequestHeader.Clone()
	}
	route, parameters, err := c.router.FindRoute(req)
	if err != nil {
		return nil, err
	}
	return &openapi3filter.RequestValidationInput{
		Request: req, PathParams: parameters, Route: route, Options: options(),
	}, nil
}

func (c *Contract) checkResponse(x Exchange, input *openapi3filter.RequestValidationInput) error {
	ref := input.Route.Operation.Responses.Status(x.Status)
	if ref == nil {
		if slices.Contains(commonStatuses, x.Status) {
			return c.checkProblem(x)
		}
		return fmt.Errorf("%s: docs/openapi.yaml does not document this status", x)
	}
	var found []error
	err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: x.Status, Header: x.ResponseHeader, Options: input.Options,
	})
	if err == nil && x.Method != http.MethodHead && len(ref.Value.Content) > 0 {
		at := located(ref.Ref, pointer(operation(input.Route), "responses", statusKey(input.Route, x.Status)))
		err = c.checkBody(at, ref.Value.Content, x.ResponseHeader.Get("Content-Type"), x.ResponseBody)
	}
	if err != nil {
		found = append(found, fmt.Errorf("%s: the response is not as documented: %w", x, err))
	}
	if len(ref.Value.Content) == 0 && len(x.ResponseBody) > 0 {
		found = append(found, fmt.Errorf("%s: the response has a body, which docs/openapi.yaml does not document", x))
	}
	for _, name := range listedHeaders {
		fromEdge := strings.HasPrefix(name, "RateLimit") && x.ResponseHeader.Get("X-Request-Id") != ""
		if ref.Value.Headers[name] == nil && x.ResponseHeader.Get(name) != "" && !fromEdge {
			found = append(found, fmt.Errorf("%s: docs/openapi.yaml does not document the header %s", x, name))
		}
	}
	return errors.Join(found...)
}

func (c *Contract) checkProblem(x Exchange) error {
	if x.Method == http.MethodHead {
		return nil
	}
	if err := c.Valid("Problem", x.ResponseBody); err != nil {
		return fmt.Errorf("%s: the response is not a problem: %w\n%s", x, err, x.ResponseBody)
	}
	return nil
}

// Valid validates a JSON text against a schema of the document, by its name.
func (c *Contract) Valid(schema string, text []byte) error {
	if c.Document.Components.Schemas[schema] == nil {
		return fmt.Errorf("docs/openapi.yaml has no schema %s", schema)
	}
	return c.schemas.validateText(named(schema), text)
}

// CheckEvent returns the deviation of one event of a stream from the document. In the document, x-events beside the
// schema of text/event-stream maps the name of an event to a reference to a schema.
func (c *Contract) CheckEvent(x Exchange, name string, data []byte) error {
	schema, ok := c.eventSchema(x, name)
	if !ok {
		return fmt.Errorf("%s: docs/openapi.yaml does not document the event %q", x, name)
	}
	if err := c.Valid(schema, data); err != nil {
		return fmt.Errorf("%s: the event %s is not as documented: %w\n%s", x, name, err, data)
	}
	return nil
}

func (c *Contract) eventSchema(x Exchange, name string) (string, bool) {
	input, err := c.find(x)
	if err != nil {
		return "", false
	}
	response := input.Route.Operation.Responses.Status(x.Status)
	if response == nil {
		return "", false
	}
	media := response.Value.Content["text/event-stream"]
	if media == nil {
		return "", false
	}
	events, _ := media.Extensions["x-events"].(map[string]any)
	event, _ := events[name].(map[string]any)
	ref, _ := event["$ref"].(string)
	return strings.CutPrefix(ref, "#/components/schemas/")
}

// transportHeaders are headers of webhooks that the document does not list.
var transportHeaders = []string{"Accept-Encoding", "Content-Length", "Content-Type", "User-Agent"}

// CheckWebhook returns every deviation of a request to a webhook endpoint from the webhook with this name, joined.
func (c *Contract) CheckWebhook(name string, header http.Header, body []byte) error {
	item := c.Document.Webhooks[name]
	if item == nil || item.Post == nil {
		return fmt.Errorf("docs/openapi.yaml does not document the webhook %q", name)
	}
	var found []error
	input := &openapi3filter.RequestValidationInput{Request: &http.Request{Header: header}, Options: options()}
	documented := slices.Clone(transportHeaders)
	for _, p := range item.Post.Parameters {
		found = append(found, openapi3filter.ValidateParameter(context.Background(), input, p.Value))
		documented = append(documented, http.CanonicalHeaderKey(p.Value.Name))
	}
	for name := range header {
		if !slices.Contains(documented, name) {
			found = append(found, fmt.Errorf("the header %s is not documented", name))
		}
	}
	at := pointer("/webhooks", name, "post", "requestBody")
	found = append(found, c.checkBody(at, item.Post.RequestBody.Value.Content, header.Get("Content-Type"), body))
	if err := errors.Join(found...); err != nil {
		return fmt.Errorf("the webhook %s is not as documented: %w\n%s", name, err, body)
	}
	return nil
}
