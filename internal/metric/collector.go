package metric

import (
	"context"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// timeout bounds the read of a scrape.
const timeout = time.Second

// Label returns a text as the value of a label. client_golang rejects text that is not valid UTF-8, so it is quoted.
func Label(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return strconv.QuoteToASCII(text)
}

// SetGauge sets a gauge. name is without the prefix of its Collector. values are the values of its labels; see
// Label. All calls with one name must have the same number of values and the same help.
type SetGauge func(name, help string, value float64, values ...string)

// Collector is a prometheus.Collector of gauges that are read at each scrape, such as counts in a store. Series
// disappear with the objects that they describe, so the gauges are not known in advance.
type Collector struct {
	Prefix string   // of the names
	Labels []string // names of the labels; a gauge has the first ones
	// Read sets the gauges, within a second. After an error, the gauges that are already set are exported. It may be
	// called concurrently.
	Read func(ctx context.Context, set SetGauge) error
}

// Describe implements prometheus.Collector.
func (Collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. The gauge up is 1, or 0 when Read failed.
func (c Collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	set := func(name, help string, value float64, values ...string) {
		for i, v := range values {
			values[i] = Label(v)
		}
		desc := prometheus.NewDesc(c.Prefix+name, help, c.Labels[:len(values)], nil)
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, values...)
	}
	up := 1.0
	if c.Read(ctx, set) != nil {
		up = 0
	}
	set("up", "Whether the other gauges could be read.", up)
}
