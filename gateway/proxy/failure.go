package proxy

import (
	"errors"
	"io"
	"net"

	"github.com/valyala/fasthttp"
)

// ErrHTTP10 reports a response that cannot be sent to an HTTP/1.0 client, because its length is unknown and it is
// large or an event stream.
var ErrHTTP10 = errors.New("the response needs HTTP/1.1")

var errNoBackend = errors.New("no backend is available")

type failure struct {
	label string // in the metric sluice_edge_upstream_failures_total
	text  string // in the access log
}

func (f *failure) Error() string { return f.text }

// The failures of an attempt.
var (
	errDial    = &failure{"dial", "backend unreachable"}
	errBroken  = &failure{"broken", "backend closed the connection without a response"}
	errTimeout = &failure{"timeout", "backend did not respond in time"}
	errInvalid = &failure{"invalid", "backend sent an invalid response"}
)

// classify returns the failure that an error on a backend connection means.
func classify(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, fasthttp.ErrTimeout), errors.As(err, &timeout) && timeout.Timeout():
		return errTimeout
	case errors.As(err, &timeout),
		errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed):
		return errBroken
	}
	return errInvalid
}
