package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// receiver is a shop's endpoint. It verifies deliveries and records each accepted id. Every fiftieth id hangs at its
// first attempt until the sender gives up, and one in five fails: ids at their first attempt, or with anyTime all
// requests.
type receiver struct {
	*httptest.Server
	anyTime bool

	mu       sync.Mutex
	secret   string
	tried    map[string]int    // attempts by id
	took     map[string]int    // how often it was accepted, by id
	bodies   map[string]string // by id
	requests int
	failed   int
	hung     int
	forged   int
	early    []string // cancelled before they were created
	clash    string   // an id that arrived with two bodies
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{tried: map[string]int{}, took: map[string]int{}, bodies: map[string]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	switch id := req.Header.Get("webhook-id"); r.judge(id, body, req.Header) {
	case hangs:
		<-req.Context().Done()
	case fails:
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.took[id]++
	}
}

type verdict int

const (
	takes verdict = iota
	fails
	hangs
)

// judge returns the verdict on a request.
func (r *receiver) judge(id string, body []byte, header http.Header) verdict {
	const manyFailures = 7 // of one id; a delivery fails after eleven attempts, and none may
	r.mu.Lock()
	defer r.mu.Unlock()
	hook, err := standardwebhooks.NewWebhook(r.secret)
	if err != nil || hook.Verify(body, header) != nil {
		r.forged++
	}
	if before, again := r.bodies[id]; again && before != string(body) {
		r.clash = id + ": " + before + " and " + string(body)
	}
	r.bodies[id] = string(body)
	if created := strings.Replace(id, "_cancelled_", "_created_", 1); created != id && r.took[created] == 0 {
		r.early = append(r.early, id)
	}
	n, first := len(r.tried), r.tried[id] == 0
	r.tried[id]++
	r.requests++
	switch {
	case first && n%50 == 49:
		r.hung++
		return hangs
	case first && !r.anyTime && n%5 == 4, r.anyTime && r.requests%5 == 4 && r.tried[id] <= manyFailures:
		r.failed++
		return fails
	}
	return takes
}

func (r *receiver) taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.took)
}

// add creates an endpoint for the receiver, and returns its id.
func (r *receiver) add(t *testing.T, data string, more ...string) string {
	t.Helper()
	out, errOut, code := sluiceRun(
		t,
		nil,
		append([]string{"webhook", "add", r.URL + "/hook", "--data", data, "--json"}, more...)...)
	var made struct{ ID, Secret string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 {
		t.Fatalf("%v: %s%s", err, out, errOut)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secret = made.Secret
	return made.ID
}
