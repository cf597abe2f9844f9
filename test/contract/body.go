package contract

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas compiles the schemas of a document, each once. It is safe for concurrent use.
type schemas struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema // by JSON pointer
}

// location is the name of the document in errors of the compiler.
const location = "openapi.json"

func newSchemas(doc *openapi3.T) (*schemas, error) {
	text, err := doc.MarshalJSON()
	if err != nil {
		return nil, err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	s := &schemas{compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	s.compiler.DefaultDraft(jsonschema.Draft2020) // the dialect of OpenAPI 3.1
	s.compiler.AssertFormat()
	return s, s.compiler.AddResource(location, value)
}

// validate validates a value against the schema at a JSON pointer.
func (s *schemas) validate(at string, value any) error {
	s.mu.Lock()
	schema, ok := s.compiled[at]
	if !ok {
		var err error
		if schema, err = s.compiler.Compile(location + "#" + at); err != nil {
			s.mu.Unlock()
			return err
		}
		s.compiled[at] = schema
	}
	s.mu.Unlock()
	return schema.Validate(value)
}

func (s *schemas) validateText(at string, text []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.validate(at, value)
}

// pointer returns the JSON pointer to a member of the value at another pointer.
func pointer(at string, names ...string) string {
	for _, name := range names {
		at += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	return at
}

func named(schema string) string { return pointer("/components/schemas", schema) }

// located returns the JSON pointer that a reference names, or the given one if there is no reference.
func located(ref, at string) string {
	if ref != "" {
		return strings.TrimPrefix(ref, "#")
	}
	return at
}

func operation(route *routers.Route) string {
	return pointer("/paths", route.Path, strings.ToLower(route.Method))
}

// statusKey returns the member of the operation's responses that documents a status.
func statusKey(route *routers.Route, status int) string {
	key := strconv.Itoa(status)
	if route.Operation.Responses.Value(key) == nil {
		return key[:1] + "XX"
	}
	return key
}

// checkRequestBody validates the body of a request. A server reads a body without a type as JSON.
func (c *Contract) checkRequestBody(x Exchange, route *routers.Route) error {
	ref := route.Operation.RequestBody
	switch {
	case ref == nil && len(x.RequestBody) > 0:
		return errors.New("the operation documents no body")
	case ref == nil, len(x.RequestBody) == 0 && !ref.Value.Required:
		return nil
	case len(x.RequestBody) == 0:
		return errors.New("the body is required")
	}
	media := x.RequestHeader.Get("Content-Type")
	if media == "" {
		media = "application/json"
	}
	at := located(ref.Ref, pointer(operation(route), "requestBody"))
	return c.checkBody(at, ref.Value.Content, media, x.RequestBody)
}

// checkBody validates a body against the content of the request or response at a JSON pointer. A type that is not JSON
// must be documented; its body is not read.
func (c *Contract) checkBody(at string, content openapi3.Content, media string, body []byte) error {
	documented := content.Get(media)
	if documented == nil {
		return fmt.Errorf("the type %q is not documented", media)
	}
	name, _, _ := strings.Cut(media, ";")
	if documented.Schema == nil || name != "application/json" && !strings.HasSuffix(name, "+json") {
		return nil
	}
	for key, one := range content {
		if one == documented {
			at = pointer(at, "content", key, "schema")
		}
	}
	return c.schemas.validateText(at, body)
}
