package adminhttp

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/valyala/fasthttp"

	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

// PolicyTrial checks and replays policies of the edges. Its results are encoded as JSON.
type PolicyTrial interface {
	// Check returns the rules, errors and warnings of a policy.
	Check(source string) any
	// Replay evaluates an access log with a policy and, unless it is empty, with a second one. Its errors describe
	// faults of the input, except an error of ctx.
	Replay(ctx context.Context, source, against string, log io.Reader) (any, error)
}

const (
	replayPath = "/admin/v1/policy/replay"
	// replayLimit bounds the body of a replay, in bytes.
	replayLimit = 64 << 20
)

var errSlowReplay = httpserver.NewProblem(problem.BadRequest,
	"The replay took too long. Send a shorter log, or use the command sluice policy replay.")

func (h *handlers) addPolicy() {
	h.post("/admin/v1/policy/check", h.checkPolicy)
	h.post(replayPath, h.replayPolicy)
}

// upload returns the limit of the body of a request that may upload a log: a replay with the token or a session. Other
// requests must not make the backend buffer a large body.
func (h *handlers) upload(head *fasthttp.RequestHeader) int {
	token, ok := httpserver.Bearer(string(head.Peek(fasthttp.HeaderAuthorization)))
	if !ok || !h.isToken([]byte(token)) {
		_, ok = h.sessions.Verify(string(head.Cookie(sessionCookie)))
	}
	if !ok || string(head.RequestURI()) != replayPath {
		return 0
	}
	return replayLimit
}

func (h *handlers) checkPolicy(_ context.Context, r *request) (any, error) {
	body := r.object()
	source := policyOf(body)
	if err := r.end(body); err != nil {
		return nil, err
	}
	return h.cfg.Policies.Check(source), nil
}

// policyOf takes the required field "policy".
func policyOf(body *httpserver.Object) string {
	body.Require("policy")
	return body.Text("policy")
}

// replayPolicy reads the policies from the first line of the body, a JSON object, and the log from the rest.
func (h *handlers) replayPolicy(ctx context.Context, r *request) (any, error) {
	head, log, _ := bytes.Cut(r.Context().Request.Body(), []byte("\n"))
	body, err := httpserver.ParseObject(head)
	if err != nil {
		return nil, err
	}
	source, against := policyOf(body), body.Text("against")
	if err := r.end(body); err != nil {
		return nil, err
	}
	report, err := h.cfg.Policies.Replay(ctx, source, against, bytes.NewReader(log))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, errSlowReplay
	case err != nil:
		return nil, httpserver.NewProblem(problem.BadRequest, err.Error())
	}
	return report, nil
}
