package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// uploader sends spans to a collector: OTLP over HTTP with protobuf. It implements otlptrace.Client. The SDK's exporter
// for this protocol is not used, because it links gRPC and its gateway (ADR 49). It is safe for concurrent use.
type uploader struct {
	url     string
	headers map[string]string
	gzip    bool
	client  *http.Client
	stop    chan struct{} // closed by Stop
}

func newUploader(s settings) *uploader {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // documented by net/http
	transport.TLSClientConfig = s.tls
	return &uploader{
		url: s.endpoint, headers: s.headers, gzip: s.gzip, stop: make(chan struct{}),
		client: &http.Client{Transport: transport, Timeout: s.timeout, CheckRedirect: checkRedirect},
	}
}

// checkRedirect follows a redirect that repeats the POST on the same host. Any other redirect would drop the spans, or
// send the headers, which may have a secret, to another host or unencrypted.
func checkRedirect(to *http.Request, before []*http.Request) error {
	from := before[len(before)-1]
	if to.Method == http.MethodPost && to.URL.Hostname() == from.URL.Hostname() &&
		(to.URL.Scheme == "https" || from.URL.Scheme == "http") && len(before) <= maxRedirects {
		return nil
	}
	return http.ErrUseLastResponse
}

// Start implements otlptrace.Client. It does nothing.
func (u *uploader) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client. It ends uploads that wait for a retry.
func (u *uploader) Stop(context.Context) error {
	close(u.stop)
	u.client.CloseIdleConnections()
	return nil
}

// Bounds of uploads. The wait before a retry doubles with each failure, unless the collector sends Retry-After.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second // the longest wait

	maxRedirects  = 3
	maxRetryAfter = 60       // seconds; a longer Retry-After is reduced to it
	maxAnswer     = 64 << 10 // bytes of an answer that are read
)

// UploadTraces implements otlptrace.Client. It retries an upload that the collector rejects temporarily, until ctx
// ends.
func (u *uploader) UploadTraces(ctx context.Context, resources []*spans.ResourceSpans) error {
	// The request of an export has one field, the resource spans, with the same number as in TracesData. Both messages
	// therefore have the same encoding.
	body, err := proto.Marshal(&spans.TracesData{ResourceSpans: resources})
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	if u.gzip {
		if body, err = compress(body); err != nil {
			return fmt.Errorf("tracing: %w", err)
		}
	}
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		retry, err := u.post(ctx, body)
		if retry < 0 {
			return err
		}
		select {
		case <-time.After(max(wait, retry)):
		case <-u.stop:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

func compress(body []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	err := w.Close()
	return b.Bytes(), err
}

// final means that an upload is not retried.
const final = -1

// post sends a body once. If err is not nil and retry is not final, the caller may retry after that duration.
func (u *uploader) post(ctx context.Context, body []byte) (retry time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url, bytes.NewReader(body))
	if err != nil {
		return final, fmt.Errorf("tracing: %w", err)
	}
	request.Header.Set("User-Agent", "sluice")
	for name, value := range u.headers {
		request.Header.Set(name, value)
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	if u.gzip {
		request.Header.Set("Content-Encoding", "gzip")
	}
	response, err := u.client.Do(request)
	if err != nil {
		return final, fmt.Errorf("tracing: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch code := response.StatusCode; {
	case code >= 200 && code <= 299:
		if err != nil || response.Header.Get("Content-Type") != "application/x-protobuf" {
			return final, nil // the collector has the spans
		}
		return final, partialSuccess(answer)
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable,
		code == http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		retry = time.Duration(min(max(seconds, 0), maxRetryAfter)) * time.Second
	default:
		retry = final
	}
	return retry, fmt.Errorf("tracing: the collector answers %s: %s", response.Status, strings.TrimSpace(string(answer)))
}

// partialSuccess returns an error if the answer of a collector, an ExportTraceServiceResponse, reports rejected spans:
// field 1 has their number in field 1 and the reason in field 2.
func partialSuccess(answer []byte) error {
	_, partial := field(answer, 1)
	rejected, _ := field(partial, 1)
	_, reason := field(partial, 2)
	if rejected == 0 && len(reason) == 0 {
		return nil
	}
	return fmt.Errorf("tracing: the collector rejected %d spans: %s", rejected, reason)
}

// field returns the last value of a field of a message, as a number or as bytes. It stops at an invalid field.
func field(message []byte, want protowire.Number) (n uint64, text []byte) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			break
		}
		value := message[tag:]
		length := protowire.ConsumeFieldValue(number, kind, value)
		switch {
		case length < 0:
			return n, text
		case number == want && kind == protowire.VarintType:
			n, _ = protowire.ConsumeVarint(value)
		case number == want && kind == protowire.BytesType:
			text, _ = protowire.ConsumeBytes(value)
		}
		message = value[length:]
	}
	return n, text
}
