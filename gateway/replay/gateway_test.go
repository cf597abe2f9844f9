package replay_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sluice/gateway"
	"sluice/gateway/policy"
	"sluice/gateway/replay"
	"sluice/internal/edgeconfig"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

const secret = "a gateway secret for tests, 32 bytes or more"

// The replay of a gateway's log with its own policy must make the same decisions.
func TestReplayMatchesTheGateway(t *testing.T) {
	source := []byte(`return { rules = {
		{ name = "ip",    key = "ip",    rate = "1r/h", burst = 30 },
		{ name = "pages", key = "ip",    rate = "1r/h", burst = 4, match = { path = "/v1/*" } },
		{ name = "token", key = "token", rate = "1r/h", burst = 1, match = { method = "POST" } },
	} }`)
	backend := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }),
	)
	defer backend.Close()
	var log testenv.Buffer
	g, err := gateway.New(
		gateway.Config{
			Shared:       edgeconfig.Shared{Upstreams: []string{backend.Listener.Addr().String()}, Secret: secret},
			PolicySource: source,
			AccessLog:    &log,
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	ln := testenv.Listen(t)
	stop := testenv.Run(t, func(ctx context.Context) error { return g.Serve(ctx, ln) })
	did := map[int]int64{}
	for i := range 60 {
		method, path := "GET", "/v1/sales?x=%31"
		if i%3 > 0 {
			method, path = "POST", "/orders/"
		}
		request, _ := http.NewRequest(method, "http://"+ln.Addr().String()+path, nil)
		if i%3 == 1 {
			raw := tokentest.Sign(t, secret, fmt.Sprint("buyer \"", i%4, "\" ü"), time.Hour)
			request.Header.Set("Authorization", "Bearer "+raw)
		}
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		did[response.StatusCode]++
	}
	stop() // writes the rest of the log
	if did[200] == 0 || did[401] == 0 || did[429] == 0 {
		t.Fatalf("the traffic does not cover every verdict: %v", did)
	}
	p, err := policy.Parse("policy.lua", source)
	if err != nil {
		t.Fatal(err)
	}
	got, err := replay.Run(t.Context(),
		replay.Config{New: p, Inputs: []replay.Input{{Name: "log", Reader: strings.NewReader(log.String())}}})
	if err != nil {
		t.Fatal(err)
	}
	if s := got.Policy; got.BadLines != 0 || s.Passed != did[200] || s.Refused != did[429] || s.Unauthorized != did[401] ||
		got.RefusedBefore != did[429] {
		t.Errorf("replay: %d admitted, %d refused, %d unauthorized, %d invalid lines; the gateway responded %v", s.Passed,
			s.Refused, s.Unauthorized, got.BadLines, did)
	}
}
