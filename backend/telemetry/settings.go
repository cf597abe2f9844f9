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
func samplerOf(name, arg string) (sdk.Sampler, error) {
	ratio := func(otherwise float64) (float64, error) {
		if arg == "" {
			return otherwise, nil
		}
		share, err := strconv.ParseFloat(arg, 64)
		if err != nil || !(0 <= share && share <= 1) {
			return 0, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG=%s: want a number between 0 and 1", arg)
		}
		return share, nil
	}
	switch name {
	case "always_on":
		return sdk.AlwaysSample(), nil
	case "always_off":
		return sdk.NeverSample(), nil
	case "parentbased_always_on":
		return sdk.ParentBased(sdk.AlwaysSample()), nil
	case "parentbased_always_off":
		return sdk.ParentBased(sdk.NeverSample()), nil
	case "traceidratio":
		share, err := ratio(1)
		return sdk.TraceIDRatioBased(share), err
	case "parentbased_traceidratio":
		share, err := ratio(1)
		return sdk.ParentBased(sdk.TraceIDRatioBased(share)), err
	case "":
		share, err := ratio(defaultRatio)
		return sdk.ParentBased(sdk.TraceIDRatioBased(share)), err
	}
	return nil, fmt.Errorf(
		"OTEL_TRACES_SAMPLER=%s: want always_on, always_off or traceidratio, or parentbased_ and one of them", name,
	)
}
