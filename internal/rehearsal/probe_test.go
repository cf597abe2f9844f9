package rehearsal

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

func TestAnEdgeThatDoesNotRespondIsNamedWithTheRemedy(t *testing.T) {
	t.Parallel()
	target := &url.URL{Scheme: "http", Host: testenv.FreeAddress(t)}
	err := newEdge(target, maxProbes, time.Minute).detectAddresses(t.Context())
	want := "edge " + target.String() + " does not respond: start it, or set --target to its address (dial "
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
