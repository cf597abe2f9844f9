package api

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"sluice/backend/api/userlimit"
	"sluice/backend/web/httpserver/servertest"
	"sluice/internal/token/tokentest"
)

func TestSaleIDsOfWrongFormAre400(t *testing.T) {
	w := newWorld()
	s := w.serve(t)
	auth := "Authorization: " + bearerOf(t, "ann")
	for _, id := range []string{
		"a%00b", "a{b}", "{a", "a}", "a%7Bb%7D", "a%20b", "a+b", "a%2Fb", "%2F", "..%2F..", "a%0d%0ab", "-a", ".a", "_a",
		"a:b", "a*b", "a,b", "a;b", "%", "%zz", "%C3%A9", "a%41",
		"a'b", "a\"b", "a<b>", "a|b", "a\\b", "a^b", "a`b", "é", "a@b", "a=b", "a&b", "a$b", "a(b)", "a!b", "a~b",
		strings.Repeat("a", 65), strings.Repeat("a", 10_000),
	} {
		for _, request := range []string{
			"POST /v1/sales/" + id + "/orders", "GET /v1/sales/" + id, "GET /v1/sales/" + id + "/events",
		} {
			a := s.Raw(request + " HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n\r\n")
			if a.Status != 400 || a.Field(t, "code") != "bad-request" || !strings.Contains(a.Body, `"field":"sale"`) {
				t.Errorf("%.60s: %d %.200s", request, a.Status, a.Body)
			}
		}
	}
	if len(w.requests) > 0 || w.views > 0 {
		t.Errorf("%d purchases and %d views reached the store", len(w.requests), w.views)
	}
}

func TestPathsThatAreNoRouteAre404(t *testing.T) {
	s := newWorld().serve(t)
	for _, path := range []string{
		"/s", "/s/", "/assets", "/assets/", "/v1", "/v1/", "/v1/sales/", "/v1/sales//orders", "/v1/sales/drop/",
		"/v1/sales/drop/orders/", "/v1//sales", "//v1/sales", "/V1/sales", "/v1/Sales",
		"/v1/sales/../sales", "/v1/sales/drop/orders/1", "/v1/orders", "/v1/orders/", "/healthz/", "/metrics",
		"/admin/v1/sales", "/v1/sales/a/b/orders", "/*", "/v1/%73ales", "/S/drop", "/s/drop/",
	} {
		for _, method := range []string{"GET", "POST"} {
			a := s.Raw(method + " " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
			servertest.WantProblem(t, a, 404, "not-found")
		}
	}
}

func TestWrongMethodIs405WithAllow(t *testing.T) {
	s := newWorld().serve(t)
	for _, row := range []struct{ method, path, allow string }{
		{"DELETE", "/v1/sales/drop", "GET, HEAD"}, {"GET", "/v1/sales/drop/orders", "POST"},
		{"PUT", "/v1/orders/5", "GET, HEAD"}, {"OPTIONS", "/healthz", "GET, HEAD"}, {"TRACE", "/readyz", "GET, HEAD"},
	} {
		a := s.Do(row.method, row.path, "")
		servertest.WantProblem(t, a, 405, "method-not-allowed")
		if got := a.Header.Get("Allow"); got != row.allow {
			t.Errorf("%s %s: Allow %q, want %q", row.method, row.path, got, row.allow)
		}
	}
}

func TestHeadAnswersLikeGetWithoutBody(t *testing.T) {
	s := newWorld().serve(t)
	for _, path := range []string{"/healthz", "/v1/sales", "/v1/sales/drop", "/v1/sales/drop/events"} {
		if a := s.Do("HEAD", path, ""); a.Status != 200 || a.Body != "" {
			t.Errorf("%s: %d %q", path, a.Status, a.Body)
		}
	}
}

// A request that is not HTTP or is ambiguous gets a problem, and the connection is closed.
func TestBrokenHTTPIsRefused(t *testing.T) {
	s := newWorld().serve(t)
	auth := "Authorization: " + bearerOf(t, "ann") + "\r\n"
	post := "POST /v1/sales/drop/orders HTTP/1.1\r\nHost: x\r\n" + auth
	for _, row := range []struct {
		name, request string
		status        int
		code          string
	}{
		{"both lengths", post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "bad-request"},
		{
			"both lengths, other order", post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400,
			"bad-request",
		},
		{
			"both lengths, smuggling",
			post + "transfer-encoding: chunked\r\ncontent-length: 50\r\n\r\n0\r\n\r\nGET /v1/sales HTTP/1.1\r\nHost: x\r\n\r\n",
			400, "bad-request",
		},
		{
			"both lengths, empty", post + "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "bad-request",
		},
		{"identity", post + "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}", 400, "bad-request"},
		{"identity alone", post + "Transfer-Encoding: identity\r\n\r\n", 400, "bad-request"},
		{"other encoding", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400, "bad-request"},
		{
			"chunked twice", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
			"bad-request",
		},
		{"hidden encoding", post + "Transfer-Encoding : chunked\r\nContent-Length: 2\r\n\r\n{}", 400, "bad-request"},
		{"folded encoding", post + "Transfer-Encoding:\r\n chunked\r\nContent-Length: 2\r\n\r\n{}", 400, "bad-request"},
		{"two lengths", post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400, "bad-request"},
		{"negative length", post + "Content-Length: -1\r\n\r\n", 400, "bad-request"},
		{"length of letters", post + "Content-Length: two\r\n\r\n{}", 400, "bad-request"},
		{"huge length", post + "Content-Length: 99999999999999999999\r\n\r\n", 400, "bad-request"},
		{"bad chunk", post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", 400, "bad-request"},
		{"space in the path", "GET /v1/sales/a b HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad-request"},
		{"NUL in the path", "GET /v1/sales/a\x00b HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad-request"},
		{"NUL in a header", "GET /v1/sales HTTP/1.1\r\nHost: x\r\nToken: a\x00b\r\n\r\n", 400, "bad-request"},
		{"two hosts", "GET /v1/sales HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400, "bad-request"},
		{"not HTTP", "hello\r\n\r\n", 400, "bad-request"},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad-request"},
		{
			"huge head", "GET /v1/sales HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 17<<10) + "\r\n\r\n", 431,
			"too-large",
		},
		{"huge path", "GET /v1/sales/" + strings.Repeat("a", 17<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n", 431, "too-large"},
		{"huge body", post + "Content-Length: 20000\r\n\r\n" + strings.Repeat("a", 20000), 413, "too-large"},
		{
			"huge chunked body",
			post + "Transfer-Encoding: chunked\r\n\r\n4e20\r\n" + strings.Repeat("a", 20000) + "\r\n0\r\n\r\n", 413, "too-large",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := s.RawClosed(row.request)
			servertest.WantProblem(t, a, row.status, row.code)
			if strings.Contains(a.Body, "ann") || strings.Contains(a.Body, "Host") {
				t.Errorf("the refusal quotes the request: %s", a.Body)
			}
		})
	}
}

// A client that is still sending reads the refusal and not a reset.
func TestRefusalReachesAClientThatIsStillSending(t *testing.T) {
	s := newWorld().serve(t)
	for range 20 {
		servertest.WantProblem(t,
			s.Do("POST", "/v1/sales/drop/orders", strings.Repeat("a", 200<<10), "Authorization: "+bearerOf(t, "ann")), 413,
			"too-large")
	}
}

func TestUnknownMethodIsAProblem(t *testing.T) {
	a := newWorld().serve(t).Raw("BREW /v1/sales HTTP/1.1\r\nHost: x\r\n\r\n")
	servertest.WantProblem(t, a, 400, "bad-request")
}

// forge signs any header and claims with the right secret.
func forge(header, claims string) string {
	return tokentest.HS(tokentest.Segments(header, claims), []byte(secret))
}

func TestInvalidTokensAre401(t *testing.T) {
	w := newWorld()
	s := w.serve(t)
	good := strings.TrimPrefix(bearerOf(t, "ann"), "Bearer ")
	expired := tokentest.Sign(t, secret, "ann", -time.Minute)
	wrongKey := tokentest.Sign(t, "another secret of more than thirty-two bytes", "ann", time.Hour)
	exp := fmt.Sprintf(`"exp":%d`, time.Now().Add(time.Hour).Unix())
	const hs256 = `{"alg":"HS256","typ":"JWT"}`
	rows := map[string][]string{
		"none":                   {},
		"empty":                  {"Authorization: "},
		"no token":               {"Authorization: Bearer"},
		"spaces alone":           {"Authorization: Bearer   "},
		"other scheme":           {"Authorization: Basic " + good},
		"no scheme":              {"Authorization: " + good},
		"other scheme and token": {"Authorization: Basic x", "token: " + good},
		"two authorizations":     {"Authorization: Bearer " + good, "Authorization: Bearer " + wrongKey},
		"two of the same":        {"Authorization: Bearer " + good, "Authorization: Bearer " + good},
		"two token headers":      {"token: " + good, "token: " + good},
		"expired":                {"Authorization: Bearer " + expired},
		"wrong key":              {"Authorization: Bearer " + wrongKey},
		"alg none, no signature": {
			"Authorization: Bearer " + tokentest.Segments(`{"alg":"none"}`, `{"sub":"ann",`+exp+`}`) + ".",
		},
		"alg none, signed": {"Authorization: Bearer " + forge(`{"alg":"none"}`, `{"sub":"ann",`+exp+`}`)},
		"alg HS384":        {"Authorization: Bearer " + forge(`{"alg":"HS384"}`, `{"sub":"ann",`+exp+`}`)},
		"crit": {
			"Authorization: Bearer " + forge(`{"alg":"HS256","crit":["b64"]}`, `{"sub":"ann",`+exp+`}`),
		},
		"two segments":          {"Authorization: Bearer " + good[:strings.LastIndexByte(good, '.')]},
		"four segments":         {"Authorization: Bearer " + good + ".eA"},
		"empty fourth segment":  {"Authorization: Bearer " + good + "."},
		"short signature":       {"Authorization: Bearer " + good[:len(good)-20]},
		"no exp":                {"Authorization: Bearer " + forge(hs256, `{"sub":"ann"}`)},
		"no sub":                {"Authorization: Bearer " + forge(hs256, `{`+exp+`}`)},
		"empty sub":             {"Authorization: Bearer " + forge(hs256, `{"sub":"",`+exp+`}`)},
		"sub is a number":       {"Authorization: Bearer " + forge(hs256, `{"sub":5,`+exp+`}`)},
		"sub with NUL":          {"Authorization: Bearer " + forge(hs256, `{"sub":"a\u0000b",`+exp+`}`)},
		"sub with a line break": {"Authorization: Bearer " + forge(hs256, `{"sub":"a\nb",`+exp+`}`)},
		"sub too long":          {"Authorization: Bearer " + forge(hs256, `{"sub":"`+strings.Repeat("a", 256)+`",`+exp+`}`)},
		"too long": {
			"Authorization: Bearer " + forge(hs256, `{"sub":"ann","x":"`+strings.Repeat("a", 4096)+`",`+exp+`}`),
		},
		"not base64":        {"Authorization: Bearer ~~~.~~~.~~~"},
		"token header, bad": {"token: " + wrongKey},
	}
	for name, headers := range rows {
		t.Run(name, func(t *testing.T) {
			for _, a := range []servertest.Answer{
				s.Do("POST", "/v1/sales/drop/orders", "", headers...),
				s.Do("GET", "/v1/orders/"+servertest.OrderID(1).String(), "", headers...),
			} {
				servertest.WantProblem(t, a, 401, "unauthorized")
				if got := a.Header.Get("WWW-Authenticate"); got != `Bearer error="invalid_token"` {
					t.Errorf("WWW-Authenticate %q", got)
				}
				if got := a.Field(t, "detail"); got != "A valid token is required." {
					t.Errorf("detail %q", got)
				}
			}
		})
	}
	if len(w.requests) > 0 {
		t.Errorf("%d purchases without a buyer", len(w.requests))
	}
	for _, headers := range [][]string{
		{"Authorization: Bearer " + good}, {"Authorization: bearer   " + good}, {"token: " + good},
	} {
		if a := s.Do("POST", "/v1/sales/drop/orders", "", headers...); a.Status != 202 {
			t.Errorf("a good token got %d: %.30s", a.Status, headers[0])
		}
	}
}

func TestPurchaseBodiesAndKeysOfWrongFormAre400(t *testing.T) {
	w := newWorld()
	s := w.serve(t)
	auth := "Authorization: " + bearerOf(t, "ann")
	deep := strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000)
	for _, row := range []struct{ name, body, header, field string }{
		{"not JSON", "hello", "", "body"},
		{"an array", "[]", "", "body"},
		{"null", "null", "", "body"},
		{"a string", `"x"`, "", "body"},
		{"only spaces", "   ", "", "body"},
		{"not closed", "{", "", "body"},
		{"trailing text", "{} {}", "", "body"},
		{"trailing text", "{}x", "", "body"},
		{"trailing comma", "{},", "", "body"},
		{"not UTF-8", "{\"\xff\":1}", "", "body"},
		{"byte order mark", "\xef\xbb\xbf{}", "", "body"},
		{"a name twice", `{"a":1,"a":2}`, "", "body"},
		{"a name twice, spelled differently", `{"a":1,"\u0061":2}`, "", "body"},
		{"deep", deep, "", "body"},
		{"deep arrays", strings.Repeat("[", 10_000), "", "body"},
		{"a field", `{"quantity":1}`, "", "quantity"},
		{"a long field", `{"` + strings.Repeat("é", 500) + `":1}`, "", strings.Repeat("é", 20) + "..."},
		{"no content type", "{}", "Content-Type: ", "Content-Type"},
		{"a form", "a=b", "Content-Type: application/x-www-form-urlencoded", "Content-Type"},
		{"empty key", "", "Idempotency-Key: ", "Idempotency-Key"},
		{"empty quotes", "", `Idempotency-Key: ""`, "Idempotency-Key"},
		{"open quotes", "", `Idempotency-Key: "abc`, "Idempotency-Key"},
		{"after the quotes", "", `Idempotency-Key: "abc";x=1`, "Idempotency-Key"},
		{"two keys in one", "", `Idempotency-Key: "a", "b"`, "Idempotency-Key"},
		{"long key", "", "Idempotency-Key: " + strings.Repeat("k", 256), "Idempotency-Key"},
		{"long quoted key", "", `Idempotency-Key: "` + strings.Repeat("k", 256) + `"`, "Idempotency-Key"},
		{"not ASCII", "", "Idempotency-Key: é", "Idempotency-Key"},
		{"bad escape", "", `Idempotency-Key: "a\n"`, "Idempotency-Key"},
	} {
		t.Run(row.name, func(t *testing.T) {
			headers := []string{auth}
			if row.header != "" {
				headers = append(headers, row.header)
			}
			if !strings.HasPrefix(row.header, "Content-Type") {
				headers = append(headers, "Content-Type: application/json")
			}
			a := s.Do("POST", "/v1/sales/drop/orders", row.body, headers...)
			servertest.WantProblem(t, a, 400, "bad-request")
			if !strings.Contains(a.Body, `"field":"`+row.field+`"`) {
				t.Errorf("the answer does not name %s: %s", row.field, a.Body)
			}
		})
	}
	a := s.Do("POST", "/v1/sales/drop/orders", "", auth, "Idempotency-Key: a", "Idempotency-Key: b")
	servertest.WantProblem(t, a, 400, "bad-request")
	if len(w.requests) > 0 {
		t.Errorf("%d purchases reached the stock", len(w.requests))
	}
}

// Each request of this test fails several checks, and is answered for the first of them: the id of the sale, the token,
// the limit per user, the headers and the body. A client without a token thus gets no information and costs little.
func TestChecksOfAPurchaseComeInOrder(t *testing.T) {
	w := newWorld()
	limited := 0
	s := w.serve(t)
	auth := "Authorization: " + bearerOf(t, "ann")
	servertest.WantProblem(t, s.Do("POST", "/v1/sales/a*b/orders", "x"), 400, "bad-request")
	servertest.WantProblem(t, s.Do("POST", "/v1/sales/drop/orders", "x", "Idempotency-Key: "), 401, "unauthorized")
	w.do(func() {
		w.limit = func(string) (r userlimit.Result) { limited++; return r }
	})
	servertest.WantProblem(t, s.Do("POST", "/v1/sales/drop/orders", "x", auth, "Idempotency-Key: "), 429, "quota-exceeded")
	if limited != 1 {
		t.Errorf("the limiter was called %d times", limited)
	}
}

func TestOrderRequestsOfWrongFormAre400(t *testing.T) {
	s := newWorld().serve(t)
	auth := "Authorization: " + bearerOf(t, "ann")
	for _, id := range []string{
		"0", "-1", "+1", "01", "x", "1.5", "9223372036854775808", "1e3", "%31", strings.Repeat("1", 400),
	} {
		a := s.Do("GET", "/v1/orders/"+id, "", auth)
		if id == "%31" { // net/http may send it decoded; both are fine
			continue
		}
		servertest.WantProblem(t, a, 400, "bad-request")
	}
	for _, wait := range []string{"", "10", "x", "-1s", "31s", "30.1s", "1h", "9999999999999h", "NaNs", "1 s"} {
		a := s.Do("GET", "/v1/orders/5?wait="+url.QueryEscape(wait), "", auth)
		servertest.WantProblem(t, a, 400, "bad-request")
		if !strings.Contains(a.Body, `"field":"wait"`) {
			t.Errorf("wait=%s: %s", wait, a.Body)
		}
	}
}
