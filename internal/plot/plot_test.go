package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Labels must not extend beyond the plot, where they would be cut off.
func TestLabelsStayWithinThePlot(t *testing.T) {
	label := regexp.MustCompile(`<text x="([0-9.]+)" y="[0-9.]+" text-anchor="(start|middle|end)">([^<]*)</text>`)
	for _, to := range []float64{16, 40, 1600, 40_000} {
		svg := Plot{Series: []Series{{"n", "n", []float64{0, to}, []float64{0, to}}}, Unit: " ms"}.SVG()
		found := label.FindAllStringSubmatch(svg, -1)
		if last := number(to) + " s"; len(found) < 8 || found[len(found)-1][3] != last {
			t.Fatalf("to %g s: %d labels, the last is not %s", to, len(found), last)
		}
		for _, l := range found {
			at, err := strconv.ParseFloat(l[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			long := 6.2 * float64(len(l[3])) // a digit of 11 pixels
			from := map[string]float64{"start": at, "middle": at - long/2, "end": at - long}[l[2]]
			if from < 0 || from+long > width {
				t.Errorf("to %g s: %q is drawn from %.1f to %.1f", to, l[3], from, from+long)
			}
		}
	}
}

func TestPlotIsWellFormedAndDrawsEachSeries(t *testing.T) {
	text := Plot{
		Label:  `orders & "rows"`,
		Series: []Series{{"a", "a", []float64{0, 1}, []float64{3, 4}}, {"b", "b", []float64{0, 1}, []float64{1, 2}}},
		Marks:  []Mark{{0.5, "half <"}},
	}.SVG()
	lines := 0
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if start, ok := token.(xml.StartElement); ok {
			for _, a := range start.Attr {
				if a.Name.Local == "class" && strings.HasPrefix(a.Value, "line ") {
					lines++
				}
			}
		}
	}
	if lines != 2 {
		t.Errorf("%d lines, want 2 in\n%s", lines, text)
	}
}
