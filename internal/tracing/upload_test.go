package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// variables is an environment: name=value, separated by blanks.
func variables(list string) func(string) string {
	return func(name string) string {
		for pair := range strings.FieldsSeq(list) {
			if n, value, _ := strings.Cut(pair, "="); n == name {
				return value
			}
		}
		return ""
	}
}

var someSpans = []*spans.ResourceSpans{{SchemaUrl: "x"}, {SchemaUrl: "y"}}

// A collector that requires TLS, a header and compression receives a valid message.
func TestUpload(t *testing.T) {
	var got collector.ExportTraceServiceRequest
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/otlp/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" ||
			r.Header.Get("Content-Encoding") != "gzip" || r.Header.Get("Authorization") != "Bearer a,b" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(unpacked)
		if err := errors.Join(err, proto.Unmarshal(body, &got)); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := readSettings(variables("OTEL_EXPORTER_OTLP_ENDPOINT=" + server.URL + "/otlp" +
		" OTEL_EXPORTER_OTLP_TRACES_HEADERS=X-Other=,authorization=Bearer%20a%2Cb OTEL_EXPORTER_OTLP_HEADERS=a=b" +
		" OTEL_EXPORTER_OTLP_COMPRESSION=gzip OTEL_EXPORTER_OTLP_CERTIFICATE=" + file))
	if err != nil {
		t.Fatal(err)
	}
	u := newUploader(s)
	if err := u.UploadTraces(t.Context(), someSpans); err != nil {
		t.Error(err)
	}
	if len(got.GetResourceSpans()) != 2 || got.GetResourceSpans()[1].GetSchemaUrl() != "y" {
		t.Errorf("got %v", &got)
	}
	s.tls = nil
	if err := newUploader(s).UploadTraces(t.Context(), someSpans); err == nil {
		t.Error("a certificate of an unknown authority is accepted")
	}
}

// One invalid byte would prevent the export of the whole batch.
func TestReasonOfAFailureIsExportedAsUTF8(t *testing.T) {
	var got collector.ExportTraceServiceRequest
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err := errors.Join(err, proto.Unmarshal(body, &got)); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	p, err := Open(t.Context(), Config{
		Getenv:  variables("OTEL_EXPORTER_OTLP_ENDPOINT=" + server.URL + " OTEL_TRACES_SAMPLER=always_on"),
		Service: "test", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracer("test").Start(t.Context(), "EVALSHA")
	Fail(span, "ERR", "no \xff "+strings.Repeat("x", 2*MaxText))
	span.End()
	p.Close()
	if len(got.GetResourceSpans()) != 1 {
		t.Fatalf("got %v", &got)
	}
	status := got.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0].GetStatus().GetMessage()
	if !strings.HasPrefix(status, "no \uFFFD xxx") || len(status) != MaxText {
		t.Errorf("status %q", status)
	}
}

func TestInvalidUploadVariables(t *testing.T) {
	for _, list := range []string{
		"TIMEOUT=0", "TIMEOUT=10s", "TIMEOUT=99999999999", "TRACES_TIMEOUT=x", "COMPRESSION=zstd", "HEADERS=a", "HEADERS==b",
		"HEADERS=a=%zz", "HEADERS=a:b=c", "HEADERS=a=%0Asecret", "HEADERS=a=%01secret", "CERTIFICATE=/none",
		"CERTIFICATE=settings.go", "CLIENT_CERTIFICATE=/none",
	} {
		name, value, _ := strings.Cut("OTEL_EXPORTER_OTLP_"+list, "=")
		_, err := readSettings(variables("OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 " + name + "=" + value))
		if err == nil || !strings.HasPrefix(err.Error(), name+": ") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", list, err)
		}
	}
}

// The file of a certificate or a key may be a device without an end.
func TestFilesOfCertificatesAreBounded(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pair := server.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, kind string, content []byte, size int64) string {
		path := filepath.Join(t.TempDir(), name)
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
		if err := errors.Join(os.WriteFile(path, text, 0o600), os.Truncate(path, max(size, int64(len(text))))); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const large = 1<<20 + 1
	certificate, key := file("a", "CERTIFICATE", pair.Certificate[0], 0), file("b", "PRIVATE KEY", private, 0)
	largeCertificate := file("c", "CERTIFICATE", pair.Certificate[0], large)
	largeKey := file("d", "PRIVATE KEY", private, large)
	for _, row := range []struct{ env, err string }{
		{"CERTIFICATE=" + certificate, ""},
		{"CERTIFICATE=" + largeCertificate, "CERTIFICATE: " + largeCertificate + " has more than 1048576 bytes"},
		{"CLIENT_CERTIFICATE=" + certificate + " OTEL_EXPORTER_OTLP_CLIENT_KEY=" + key, ""},
		{
			"CLIENT_CERTIFICATE=" + largeCertificate + " OTEL_EXPORTER_OTLP_CLIENT_KEY=" + key,
			"CLIENT_CERTIFICATE: " + largeCertificate + " has more than 1048576 bytes",
		},
		{
			"CLIENT_CERTIFICATE=" + certificate + " OTEL_EXPORTER_OTLP_CLIENT_KEY=" + largeKey,
			"CLIENT_CERTIFICATE: " + largeKey + " has more than 1048576 bytes",
		},
		{"CLIENT_CERTIFICATE=" + certificate, "CLIENT_CERTIFICATE: OTEL_EXPORTER_OTLP_CLIENT_KEY is not set"},
	} {
		_, err := readSettings(variables("OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_EXPORTER_OTLP_" + row.env))
		if row.err == "" && err != nil || row.err != "" && (err == nil || err.Error() != "OTEL_EXPORTER_OTLP_"+row.err) {
			t.Errorf("%s: %v, want %q", row.env, err, row.err)
		}
	}
}

// answers is a collector in the process: it returns its answers one after another.
type answers struct {
	list  []*http.Response
	times []time.Time
}

func answer(status int, body string, headers ...string) *http.Response {
	r := &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(body))}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// RoundTrip implements http.RoundTripper.
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if want, _ := proto.Marshal(&spans.TracesData{ResourceSpans: someSpans}); !bytes.Equal(body, want) {
		return nil, errors.New("another body")
	}
	next := a.list[min(len(a.times), len(a.list)-1)]
	a.times = append(a.times, time.Now())
	return next, err
}

func TestUploadIsRepeatedWhileTheCollectorIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []*http.Response{
			answer(503, ""), answer(429, "", "Retry-After", "7"), answer(502, "", "Retry-After", "-5"),
			answer(503, "", "Retry-After", "9300000000"), // overflows a time.Duration
			answer(200, ""),
		}}
		u := &uploader{url: "http://c", client: &http.Client{Transport: a}, stop: make(chan struct{})}
		begin := time.Now()
		if err := u.UploadTraces(t.Context(), someSpans); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); len(a.times) != 5 || took != (1+7+4+60)*time.Second {
			t.Errorf("%d uploads in %s", len(a.times), took)
		}

		a = &answers{list: []*http.Response{answer(503, "busy")}}
		u.client.Transport = a
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		begin = time.Now()
		err := u.UploadTraces(ctx, someSpans)
		if err == nil || !strings.Contains(err.Error(), "Unavailable") || time.Since(begin) != 30*time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		time.AfterFunc(time.Second/2, func() { _ = u.Stop(t.Context()) })
		begin = time.Now()
		if err := u.UploadTraces(t.Context(), someSpans); err == nil || time.Since(begin) != time.Second/2 {
			t.Errorf("after a stop and %s: %v", time.Since(begin), err)
		}
	})
}

func TestRejectedSpansAreAnError(t *testing.T) {
	partial, err := proto.Marshal(&collector.ExportTraceServiceResponse{
		PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 3, ErrorMessage: "too old"},
	})
	if err != nil {
		t.Fatal(err)
	}
	const kind = "application/x-protobuf"
	for _, row := range []struct {
		answer *http.Response
		want   string
	}{
		{answer(200, string(partial), "Content-Type", kind), "rejected 3 spans: too old"},
		{answer(200, "", "Content-Type", kind), ""},
		{answer(200, "\x0a\xff\xff", "Content-Type", kind), ""},
		{answer(200, string(partial)), ""},
		{answer(202, "<html>"), ""},
		{answer(400, "bad"), "Bad Request: bad"},
		{answer(500, strings.Repeat("x", 1<<20)), "Internal Server Error: xxx"},
	} {
		a := &answers{list: []*http.Response{row.answer}}
		u := &uploader{url: "http://c", client: &http.Client{Transport: a}, stop: make(chan struct{})}
		err := u.UploadTraces(t.Context(), someSpans)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", row.answer.Status, err, row.want)
		}
		if len(a.times) != 1 || err != nil && len(err.Error()) > 2*maxAnswer {
			t.Errorf("%d uploads, an error of %d bytes", len(a.times), len(err.Error()))
		}
	}
}

// A redirect that drops the spans, for example to the page of a login, is an error. One to another host would send it
// the headers, which may have a secret.
func TestRedirectsThatDropSpansOrHeadersAreErrors(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another host got %s with the secret %q", r.Method, r.Header.Get("X-Key"))
	}))
	defer other.Close()
	moved := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/login/v1/traces":
			http.Redirect(w, r, "/page", http.StatusFound)
		case "/moved/v1/traces":
			http.Redirect(w, r, "/new", http.StatusPermanentRedirect)
		case "/elsewhere/v1/traces":
			http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), http.StatusTemporaryRedirect)
		case "/new":
			if body, err := io.ReadAll(r.Body); err == nil && r.Method == http.MethodPost && len(body) > 0 {
				moved++
			}
		}
	}))
	defer server.Close()
	for path, want := range map[string]string{
		"/login": "302 Found", "/moved": "", "/elsewhere": "307 Temporary Redirect",
	} {
		s, err := readSettings(variables("OTEL_EXPORTER_OTLP_HEADERS=x-key=secret OTEL_EXPORTER_OTLP_ENDPOINT=" +
			server.URL + path))
		if err != nil {
			t.Fatal(err)
		}
		err = newUploader(s).UploadTraces(t.Context(), someSpans)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if moved != 1 {
		t.Errorf("the spans were sent to the new path %d times", moved)
	}
}
