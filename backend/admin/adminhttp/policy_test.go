package adminhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"sluice/backend/web/httpserver/servertest"
	web "sluice/backend/web/page"
)

// fakePolicies returns its arguments.
type fakePolicies struct{ err error }

func (fakePolicies) Check(source string) any {
	return map[string]any{
		"rules":    []any{},
		"errors":   []any{map[string]any{"line": 1, "detail": source}},
		"warnings": []any{},
	}
}

func (f *fakePolicies) Replay(ctx context.Context, source, against string, log io.Reader) (any, error) {
	text, err := io.ReadAll(log)
	if err == nil {
		err = errors.Join(f.err, ctx.Err())
	}
	policy := map[string]any{"source": source, "against": against, "log": string(text[:min(len(text), 20)])}
	return map[string]any{"lines": len(text), "requests": 0, "policy": policy}, err
}

const (
	octets  = "Content-Type: application/octet-stream"
	gzipped = "Content-Encoding: gzip"
)

func TestPoliciesAreCheckedAndReplayed(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	if a := s.operate("POST", "/admin/v1/policy/check", `{"policy":"return {}"}`); a.Status != 200 ||
		a.Body != `{"errors":[{"detail":"return {}","line":1}],"rules":[],"warnings":[]}`+"\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for _, body := range []string{`{}`, `{"policy":7}`, `{"policy":"","more":1}`, `return {}`} {
		servertest.WantProblem(t, s.operate("POST", "/admin/v1/policy/check", body), 400, "bad-request")
	}
	head := `{"policy":"new","against":"old"}`
	if a := s.operate("POST", replayPath, head+"\nline 1\nline 2\n", octets); a.Status != 200 ||
		a.Body != `{"lines":14,"policy":{"against":"old","log":"line 1\nline 2\n","source":"new"},"requests":0}`+"\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for _, body := range []string{"", "\n", "{}\nlog", "[]\nlog", "log\n" + head, `{"policy":"new","policy":"old"}` + "\nlog"} {
		servertest.WantProblem(t, s.operate("POST", replayPath, body, octets), 400, "bad-request")
	}
	compressed := string(web.Compress([]byte(head + "\nlog")))
	if a := s.operate("POST", replayPath, compressed, octets, gzipped); a.Status != 400 ||
		!strings.Contains(a.Body, "must not be compressed") {
		t.Errorf("a compressed body: %d %s", a.Status, a.Body)
	}
	d.policies.err = errors.New("not an access log")
	if a := s.operate("POST", replayPath, head+"\nlog", octets); a.Status != 400 ||
		a.Field(t, "detail") != "not an access log" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	d.policies.err = context.DeadlineExceeded
	if a := s.operate("POST", replayPath, head+"\nlog", octets); a.Status != 400 ||
		!strings.Contains(a.Body, "sluice policy replay") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// Only a replay by an admin may have a long body, up to a limit.
func TestLongBodiesAreForReplaysOfAdmins(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	long := `{"policy":"new"}` + "\n" + strings.Repeat("x", 2*bodyLimit)
	if a := s.operate("POST", replayPath, long, octets); a.Status != 200 || !strings.Contains(a.Body, `"lines":2097152`) {
		t.Errorf("%d %.200s", a.Status, a.Body)
	}
	const admin = "Bearer " + adminToken
	for name, row := range map[string]struct{ path, authorization, body string }{
		"without a token":       {replayPath, "", long},
		"with a wrong token":    {replayPath, "Bearer x", long},
		"of another route":      {"/admin/v1/policy/check", admin, long},
		"with a query":          {replayPath + "?x=1", admin, long},
		"longer than the limit": {replayPath, admin, strings.Repeat("x", replayLimit+1)},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Addr+row.path,
			strings.NewReader(row.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", row.authorization)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue // the server closed the connection before it received the body
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a long body %s: %d", name, resp.StatusCode)
		}
	}
}
