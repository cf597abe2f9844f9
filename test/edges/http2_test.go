package edges

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A request over HTTP/2, which only nginx has, is handled like one over HTTP/1.1 at the gateway. Headers that have a
// meaning in one of the two only are left out.
func TestHTTP2IsHandledLikeHTTP1(t *testing.T) {
	tries, seed := number(t, "SLUICE_CONNECTIONS", 300), number(t, "SLUICE_CHANCE_SEED", rand.Uint64())
	t.Logf("SLUICE_CHANCE_SEED=%d", seed)
	const policy = `return { trusted_proxies = { "127.0.0.1" }, repeat_refusals = false, rules = {
		{ name = "ip", key = "ip", rate = "1r/h", burst = 50 },
		{ name = "once", key = "ip", rate = "1r/h", match = { path = "/v1/once" } },
		{ name = "token", key = "token", rate = "1r/h", match = { method = "POST", path = "/v1/sales/*/orders" } },
	} }`
	both := startBoth(t, options{policy: policy, tls: true, cors: []string{"https://shop.example"}}, play)
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // a test's chance
	for n := range tries {
		g.client = fmt.Sprintf("198.51.%d.%d", n/250%250, n%250)
		g.tokens = []string{bearer(t, fmt.Sprint("ann ", n)), bearer(t, fmt.Sprint("Zoë ", n))}
		method := g.pick(words("GET GET POST POST HEAD OPTIONS PUT DELETE X-Y_Z HEADS G")...)
		target, host := g.target(), g.pick(words("x Shop.Example:80 [::1] a_b a. x: - x@y x/y .. [::1 a,b")...)
		head := []string{":method", method, ":scheme", "https", ":authority", host, ":path", target}
		lines := []string{"Connection: close"}
		for _, line := range append(g.headers(), "X-Forwarded-For: "+g.client) {
			name, value, _ := strings.Cut(line, ":")
			name, value = strings.ToLower(name), strings.Trim(value, " ")
			switch name {
			case "te", "upgrade", "keep-alive", "expect":
			default:
				head, lines = append(head, name, value), append(lines, name+": "+value)
			}
		}
		body := g.join(20, "b")
		if body != "" {
			lines = append(lines, fmt.Sprintf("Content-Length: %d", len(body)))
		}
		raw := method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n" + body
		answer := both[1].send(t, raw, method).answers[0]
		status, answer, _ := strings.Cut(answer, "\n")
		answer = status[:3] + "\n" + answer // HTTP/2 has no reason phrase
		// Over HTTP/2, nginx sends no type without a body.
		answer = strings.Replace(answer, "204\nContent-Type: application/json\n", "204\n", 1)
		if got := both[0].sendHTTP2(t, head, body); got != answer {
			t.Errorf("%q: the client receives over HTTP/2\n%s\n\nand over HTTP/1.1\n%s", raw, got, answer)
		}
		a, b := fmt.Sprint(both[0].backend.take()), fmt.Sprint(both[1].backend.take())
		if a != b {
			t.Errorf("%q: the backend gets over HTTP/2\n%s\n\nand over HTTP/1.1\n%s", raw, a, b)
		}
	}
}

// sendHTTP2 sends one request with these fields, names and values in turn, and returns the response as send does.
func (e *edge) sendHTTP2(t *testing.T, fields []string, body string) string {
	t.Helper()
	c, err := e.dial("h2")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * timeout))
	var head, received bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	for i := 0; i < len(fields); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	framer := http2.NewFramer(c, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, _ = io.WriteString(c, http2.ClientPreface)
	_ = framer.WriteSettings()
	_ = framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: head.Bytes(), EndStream: body == "", EndHeaders: true,
	})
	if body != "" {
		_ = framer.WriteData(1, true, []byte(body))
	}
	resp := &http.Response{Header: http.Header{}}
	for ended := false; !ended; {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			resp.Status = f.PseudoValue("status")
			_, _ = fmt.Sscan(resp.Status, &resp.StatusCode)
			for _, field := range f.RegularFields() {
				resp.Header.Add(field.Name, field.Value)
			}
			ended = f.StreamEnded()
		case *http2.DataFrame:
			received.Write(f.Data())
			ended = f.StreamEnded()
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return f.Header().String()
		}
	}
	return spelled(t, resp, received.Bytes())
}
