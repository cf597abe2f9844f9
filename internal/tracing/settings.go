package tracing

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"sluice/internal/reload"
)

// defaultRatio is the default share of purchases without a traceparent that are traced.
const defaultRatio = 0.01

// Upper bounds of OTEL_BSP_*.
const (
	maxSpans = 1 << 20
	maxDelay = int(time.Hour / time.Millisecond)
)

// settings holds the values of OpenTelemetry's standard variables. The SDK reads OTEL_BSP_* and OTEL_SPAN_* itself,
// except for the size of the queue; readSettings rejects values of these variables with which the SDK would fail.
type settings struct {
	on       bool
	endpoint string
	headers  map[string]string
	gzip     bool
	timeout  time.Duration // of one upload
	tls      *tls.Config   // nil: the defaults
	sampling Sampling
	queue    int // spans that may wait
}

func readSettings(getenv func(string) string) (settings, error) {
	get := func(name string) string { return strings.TrimSpace(getenv(name)) }
	var s settings
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") {
		return settings{}, nil
	}
	switch exporter := get("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return settings{}, nil
	case "", "otlp":
	default:
		bad("OTEL_TRACES_EXPORTER=%s: want otlp or none", exporter)
	}
	base, whole := get("OTEL_EXPORTER_OTLP_ENDPOINT"), get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if base == "" && whole == "" && len(errs) == 0 {
		return settings{}, nil
	}
	s.on = true
	const only = "http/protobuf"
	protocol := cmp.Or(get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), get("OTEL_EXPORTER_OTLP_PROTOCOL"), only)
	if protocol != only {
		bad("OTEL_EXPORTER_OTLP_PROTOCOL=%s: want http/protobuf", protocol)
	}
	var err error
	if s.endpoint, err = tracesURL(base, whole); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, s.readUpload(get))
	if s.sampling, err = samplingOf(get("OTEL_TRACES_SAMPLER"), get("OTEL_TRACES_SAMPLER_ARG")); err != nil {
		errs = append(errs, err)
	}
	number := func(name, unit string, most, fallback int) int {
		text := cmp.Or(get(name), strconv.Itoa(fallback))
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > most {
			bad("%s=%s: want %s, from 1 to %d", name, text, unit, most)
		}
		return n
	}
	s.queue = number("OTEL_BSP_MAX_QUEUE_SIZE", "a number of spans", maxSpans, sdk.DefaultMaxQueueSize)
	// The SDK panics with a negative size, and without a delay it never pauses.
	number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "a number of spans", maxSpans, sdk.DefaultMaxExportBatchSize)
	number("OTEL_BSP_SCHEDULE_DELAY", "milliseconds", maxDelay, sdk.DefaultScheduleDelay)
	return s, errors.Join(errs...)
}

// readUpload reads the variables of uploads. Each may also be set for traces alone.
func (s *settings) readUpload(get func(string) string) error {
	var errs []error
	read := func(name string, parse func(value string) error) {
		for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_" + name, "OTEL_EXPORTER_OTLP_" + name} {
			if value := get(name); value != "" {
				if err := parse(value); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", name, err))
				}
				return
			}
		}
	}
	s.timeout = 10 * time.Second
	read("TIMEOUT", func(value string) error {
		ms, err := strconv.Atoi(value)
		if err != nil || ms < 1 || ms > int(time.Hour/time.Millisecond) {
			return fmt.Errorf("%s: want milliseconds, from 1 to an hour", value)
		}
		s.timeout = time.Duration(ms) * time.Millisecond
		return nil
	})
	read("COMPRESSION", func(value string) error {
		if s.gzip = value == "gzip"; !s.gzip && value != "none" {
			return fmt.Errorf("%s: want gzip or none", value)
		}
		return nil
	})
	read("HEADERS", func(value string) (err error) {
		s.headers, err = parseHeaders(value)
		return err
	})
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	read("CERTIFICATE", func(path string) (err error) {
		config.RootCAs, err = readRoots(path)
		return err
	})
	var key string
	read("CLIENT_KEY", func(path string) error { key = path; return nil })
	read("CLIENT_CERTIFICATE", func(path string) error {
		pair, err := readPair(path, key)
		config.Certificates = []tls.Certificate{pair}
		return err
	})
	if config.RootCAs != nil || config.Certificates != nil {
		s.tls = config
	}
	return errors.Join(errs...)
}

func readRoots(path string) (*x509.CertPool, error) {
	text, err := reload.ReadFile(path, reload.MaxPEM)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	return roots, nil
}

func readPair(certificate, key string) (pair tls.Certificate, err error) {
	if key == "" {
		return pair, errors.New("OTEL_EXPORTER_OTLP_CLIENT_KEY is not set")
	}
	public, err := reload.ReadFile(certificate, reload.MaxPEM)
	if err != nil {
		return pair, err
	}
	private, err := reload.ReadFile(key, reload.MaxPEM)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(public, private)
}

// parseHeaders parses name=value,name=value, whose values are percent-encoded. Its errors contain no values, which may
// be secrets.
func parseHeaders(list string) (map[string]string, error) {
	headers := map[string]string{}
	for pair := range strings.SplitSeq(list, ",") {
		name, value, found := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !found || name == "" || strings.ContainsFunc(name, notInHeaderName) || err != nil ||
			strings.ContainsFunc(value, unicode.IsControl) {
			return nil, errors.New("want name=value,name=value with percent-encoded values")
		}
		headers[name] = value
	}
	return headers, nil
}

// notInHeaderName reports whether a character cannot be in the name of a header (RFC 9110, token).
func notInHeaderName(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// tracesURL returns the URL for traces: whole if set, else base with the path of OTLP.
func tracesURL(base, whole string) (string, error) {
	name, raw := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", whole
	if whole == "" {
		name, raw = "OTEL_EXPORTER_OTLP_ENDPOINT", base
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%s: want http://host:port", name)
	}
	if whole == "" {
		u = u.JoinPath("v1/traces")
	}
	return u.String(), nil
}

// samplingOf returns the meaning of OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG.
func samplingOf(name, arg string) (s Sampling, err error) {
	s.Ratio = 1
	if name == "" {
		name, s.Ratio = "parentbased_traceidratio", defaultRatio
	}
	root, followParent := strings.CutPrefix(name, "parentbased_")
	s.FollowParent = followParent
	switch root {
	case "always_on":
	case "always_off":
		s.Ratio = 0
	case "traceidratio":
		if arg != "" {
			if s.Ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(0 <= s.Ratio && s.Ratio <= 1) {
				return Sampling{}, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG=%s: want a number between 0 and 1", arg)
			}
		}
	default:
		return Sampling{}, fmt.Errorf(
			"OTEL_TRACES_SAMPLER=%s: want always_on, always_off or traceidratio, or parentbased_ and one of them", name)
	}
	return s, nil
}
