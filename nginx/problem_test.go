package nginx

import (
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sluice/internal/problem"
)

// problems are the edge's refusals by status, as internal/problem writes them: code and detail.
var problems = map[int]struct {
	code   problem.Code
	detail string
}{
	400: {problem.BadRequest, "The request is not valid HTTP."},
	401: {problem.Unauthorized, "A valid token is required."},
	404: {problem.NotFound, "Not found."},
	405: {problem.MethodNotAllowed, "This method is not allowed here."},
	413: {problem.BodyTooLarge, "The request body exceeds 16 KiB."},
	429: {problem.RateLimited, `Too many requests: the policy "%s" allows no more right now.`},
	431: {problem.HeaderTooLarge, "The request line and headers are too large."},
	500: {problem.Internal, "Something went wrong here."},
	503: {problem.Unavailable, "The service is busy. Please try again in a moment."},
}

// problemBody is the body of a refusal with this status; rule is for 429.
func problemBody(status int, rule string) string {
	p := problems[status]
	details := problem.New(p.code, strings.ReplaceAll(p.detail, "%s", rule))
	if status == http.StatusTooManyRequests {
		details.ViolatedPolicies = []string{rule}
	}
	return string(details.Body())
}

// The refusals of both edges and of the backend are byte for byte the same.
func TestProblemsAreThoseOfInternalProblem(t *testing.T) {
	text, err := os.ReadFile("snippets/problems.conf")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]bool{}
	for _, m := range regexp.MustCompile(`(?m)^    return (\d+) '(.*)';$`).FindAllStringSubmatch(string(text), -1) {
		status, _ := strconv.Atoi(m[1])
		found[status] = true
		body := strings.ReplaceAll(strings.ReplaceAll(m[2], `\\`, `\`), "$sluice_rule", "ip")
		want := problemBody(status, "ip")
		if strings.Contains(m[2], "concurrency") {
			want = strings.Replace(problemBody(status, "concurrency"), "more right now", "more concurrent requests", 1)
		}
		if body != want {
			t.Errorf("%d:\n%s, want\n%s", status, body, want)
		}
	}
	for status := range problems {
		if !found[status] {
			t.Errorf("snippets/problems.conf has no refusal with status %d", status)
		}
	}
}
