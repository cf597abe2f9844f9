package tracing

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// defaultRatio is the default share of purchases without a traceparent that are traced.
const defaultRatio = 0.01

// settings holds the values of OpenTelemetry's standard variables. The exporter reads the variables for headers,
// timeouts, compression and certificates, and the SDK reads OTEL_BSP_* and OTEL_SPAN_*, but for the size of the queue.
type settings struct {
	on       bool
	endpoint string
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
	if s.sampling, err = samplingOf(get("OTEL_TRACES_SAMPLER"), get("OTEL_TRACES_SAMPLER_ARG")); err != nil {
		errs = append(errs, err)
	}
	if s.queue, err = strconv.Atoi(cmp.Or(get("OTEL_BSP_MAX_QUEUE_SIZE"), "2048")); err != nil || s.queue < 1 {
		bad("OTEL_BSP_MAX_QUEUE_SIZE=%s: want a number of spans, at least 1", get("OTEL_BSP_MAX_QUEUE_SIZE"))
	}
	return s, errors.Join(errs...)
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
