package contract

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Transport checks every exchange and passes it on unchanged. Deviations go to report, which must be safe for concurrent use.
type Transport struct {
	Contract *Contract
	Base     http.RoundTripper // nil: http.DefaultTransport
	Report   func(error)
}

// largest is how much of a body is kept to be checked; what is larger is let through unchecked.
const largest = 4 << 20

// RoundTrip is http.RoundTripper's. An answer is checked when its body has been read to the end, and of a stream each event.
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
	x := Exchange{Method: req.Method, Path: path, Asked: req.Header, Sent: sent, Status: resp.StatusCode, Header: resp.Header}
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
	resp.Body = &watched{ReadCloser: resp.Body, whole: func(body []byte) {
		x.Body = body
		check()
	}}
	return resp, nil
}

// watched keeps what is read and reports it once at the end. A body that its reader leaves half read is not checked.
type watched struct {
	io.ReadCloser
	kept  bytes.Buffer
	once  sync.Once
	whole func([]byte)
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if w.kept.Len()+n <= largest {
		w.kept.Write(p[:n])
	}
	if err == io.EOF && w.kept.Len() < largest {
		w.once.Do(func() { w.whole(w.kept.Bytes()) })
	}
	return n, err
}

// stream reports each event that is read.
type stream struct {
	io.ReadCloser
	line  []byte // that has not ended yet
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
			s.took(string(s.line))
			s.line = s.line[:0]
		}
	}
	return n, err
}

func (s *stream) took(line string) {
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
