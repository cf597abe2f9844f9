package e2e

import (
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/valyala/fasthttp"

	"sluice/test/contract"
)

// broken collects responses that deviate from docs/openapi.yaml. They fail the run at its end, because the request may
// have been sent by a goroutine without a test.
var broken breaches

type breaches struct {
	mu   sync.Mutex
	said map[string]int
}

func (b *breaches) note(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.said == nil {
		b.said = map[string]int{}
	}
	if text := err.Error(); len(b.said) < 100 || b.said[text] > 0 {
		b.said[text]++
	}
}

// report writes the deviations and returns the number of different ones.
func (b *breaches) report(w io.Writer) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for text, n := range b.said {
		fmt.Fprintf(w, "FAIL: an answer deviates from docs/openapi.yaml (%d times): %s\n", n, text)
	}
	return len(b.said)
}

// checked validates all exchanges of a transport against docs/openapi.yaml.
func checked(base http.RoundTripper) http.RoundTripper {
	c, err := contract.Load()
	if err != nil {
		panic(err) // the document of this tree has tests of its own
	}
	return &contract.Transport{Contract: c, Base: base, Report: broken.note}
}

// check is for the load generator, which uses another library.
func (b *breaches) check(method, path string, resp *fasthttp.Response) {
	c, err := contract.Load()
	if err != nil {
		b.note(err)
		return
	}
	header := http.Header{}
	for name, value := range resp.Header.All() {
		header.Add(string(name), string(value))
	}
	x := contract.Exchange{
		Method: method, Path: path, Status: resp.StatusCode(), ResponseHeader: header, ResponseBody: resp.Body(),
	}
	if err := c.Check(x); err != nil {
		b.note(err)
	}
}
