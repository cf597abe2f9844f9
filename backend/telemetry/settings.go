package telemetry

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// defaultRatio is the default share of purchases without a traceparent that are traced.
const defaultRatio = 0.01

// settings holds the values of OpenTelemetry's standard variables. The exporter reads the variables for headers,
// timeouts, compression and certificates, and the SDK reads OTEL_BSP_* and OTEL_SPAN_*.
type settings struct {
	on       bool
	endpoint string
	sampler  sdk.Sampler
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
	if s.sampler, err = samplerOf(get("OTEL_TRACES_SAMPLER"), get("OTEL_TRACES_SAMPLER_ARG")); err != nil {
		errs = append(errs, err)
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

// samplerOf returns the sampler of OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG.
func samplerOf(name, arg string) (sampler sdk.Sampler, err error) {
	ratio := 1.0
	if name == "" {
		name, ratio = "parentbased_traceidratio", defaultRatio
	}
	root, parentBased := strings.CutPrefix(name, "parentbased_")
	switch root {
	case "always_on":
		sampler = sdk.AlwaysSample()
	case "always_off":
		sampler = sdk.NeverSample()
	case "traceidratio":
		if arg != "" {
			if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(0 <= ratio && ratio <= 1) {
				return nil, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG=%s: want a number between 0 and 1", arg)
			}
		}
		sampler = sdk.TraceIDRatioBased(ratio)
	default:
		return nil, fmt.Errorf(
			"OTEL_TRACES_SAMPLER=%s: want always_on, always_off or traceidratio, or parentbased_ and one of them", name)
	}
	if parentBased {
		sampler = sdk.ParentBased(sampler)
	}
	return sampler, nil
}
