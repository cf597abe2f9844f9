package contract

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Transport validates the exchanges of an HTTP client. It passes deviations to Report and does not change the exchange.
// Report must be safe for concurrent use.
type Transport struct {
	Contract *Contract
	Base     http.RoundTripper // nil: http.DefaultTransport
	Report   func(error)
}

// maxBody is the size in bytes above which a response is not validated.
const maxBody = 4 << 20

// RoundTrip implements http.RoundTripper. A response is validated when its body has been read to the end, an event
// stream with each event.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	var sent []byte
	if req.Body != nil && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		if sent, err = io.ReadAll(body); err != nil {
			return nil, err
		}
	}
	resp, err := base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	path := req.URL.EscapedPath()
	if req.URL.RawQuery != "" {
		path += "?" + req.URL.RawQuery
	}
	x := Exchange{
		Method: req.Method, Path: path,
		RequestHeader: req.Header, RequestBody: sent, Status: resp.StatusCode, ResponseHeader: resp.Header,
	}
	check := func() {
		if err := t.Contract.Check(x); err != nil {
			t.Report(err)
		}
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		check()
		resp.Body = &stream{ReadCloser: resp.Body, event: func(name string, data []byte) {
			if err := t.Contract.CheckEvent(x, name, data); err != nil {
				t.Report(err)
			}
		}}
		return resp, nil
	}
	resp.Body = &recorded{ReadCloser: resp.Body, complete: func(body []byte) {
		x.ResponseBody = body
		check()
	}}
	return resp, nil
}

// recorded passes a body to complete after it has been read to the end.
type recorded struct {
	io.ReadCloser
	content  bytes.Buffer
	once     sync.Once
	complete func([]byte)
}

func (r *recorded) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.content.Len()+n <= maxBody {
		r.content.Write(p[:n])
	}
	if err == io.EOF && r.content.Len() < maxBody {
		r.once.Do(func() { r.complete(r.content.Bytes()) })
	}
	return n, err
}

// stream passes each event of a stream to event.
type stream struct {
	io.ReadCloser
	line  []byte // incomplete
	name  string
	data  []byte
	event func(name string, data []byte)
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		s.line = append(s.line, part...)
		if rest = after; ended {
			s.parse(string(s.line))
			s.line = s.line[:0]
		}
	}
	return n, err
}

func (s *stream) parse(line string) {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch {
	case line == "":
		if s.data != nil {
			s.event(s.name, s.data)
		}
		s.name, s.data = "", nil
	case name == "event":
		s.name = value
	case name == "data":
		s.data = append(s.data, value...)
	}
}
