package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/test/testenv"
)

// faultyProxy is a proxy that disturbs every purchase: it drops the first response, cuts the second, answers the third
// request with 503, and passes the fourth.
type faultyProxy struct {
	*httptest.Server
	mu       sync.Mutex
	times    map[string][]time.Time // of the attempts of a purchase, by its key
	replayed map[string]bool
}

func newFaultyProxy(t *testing.T, upstream string) *faultyProxy {
	t.Helper()
	target, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	w := &faultyProxy{times: map[string][]time.Time{}, replayed: map[string]bool{}}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() },
		ModifyResponse: func(resp *http.Response) error {
			if resp.Header.Get("Idempotency-Replayed") == "true" {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.replayed[resp.Request.Header.Get("Idempotency-Key")] = true
			}
			return nil
		},
	}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			proxy.ServeHTTP(rw, r)
			return
		}
		key := r.Header.Get("Idempotency-Key")
		w.mu.Lock()
		w.times[key] = append(w.times[key], time.Now())
		attempt := len(w.times[key])
		w.mu.Unlock()
		switch attempt {
		case 1:
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // the connection breaks
		case 2:
			rw.Header().Set("Content-Length", "100")
			rw.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(rw, `{"order_id":"93`) // and here within the response
		case 3: // as a proxy in front of sluice answers
			rw.Header().Set("Retry-After", "1")
			rw.Header().Set("Content-Type", "text/html")
			rw.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(rw, "<html>Later.")
		default:
			proxy.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(w.Close)
	return w
}

// example is one language of docs/examples.
type example struct {
	language, interpreter string   // which must be installed, except php
	buy, webhook          []string // commands; PORT in them is one
}

func examplesOf(t *testing.T) []example {
	t.Helper()
	dir, built := filepath.Join(root, "docs/examples"), t.TempDir()
	if out, err := exec.Command(
		"go", "build", "-C", root, "-o", built, "./docs/examples/go/buy", "./docs/examples/go/webhook",
	).
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	return []example{
		{"curl", "curl", []string{"sh", in("buy.sh")}, nil},
		{"go", "go", []string{filepath.Join(built, "buy")}, []string{filepath.Join(built, "webhook")}},
		{"javascript", "node", []string{"node", in("buy.mjs")}, []string{"node", in("webhook.mjs")}},
		{"python", "python3", []string{"python3", in("buy.py")}, []string{"python3", in("webhook.py")}},
		{"php", "php", []string{"php", in("buy.php")},
			[]string{"php", "-d", "display_errors=1", "-S", "127.0.0.1:PORT", in("webhook.php")}},
	}
}

// The examples for integrators work unchanged: with faults they buy exactly one unit and print the reason of a
// rejection; they accept genuine webhooks once each. The test covers each language that is installed.
func TestExamplesForIntegrators(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	u := startUp(t, data, "--allow-private", "127.0.0.0/8")
	bad := newFaultyProxy(t, u.base)
	for _, e := range examplesOf(t) {
		if _, err := exec.LookPath(e.interpreter); err != nil {
			t.Logf("%s is not installed, so its example was not run", e.interpreter)
			continue
		}
		t.Run(e.language, func(t *testing.T) {
			t.Parallel()
			buyer, errOut, code := sluiceRun(t, nil, "token", "--user", "buyer-"+e.language, "--data", data)
			if code != 0 {
				t.Fatal(errOut)
			}
			buy := func(key string) (stdout, stderr string, err error) {
				ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
				defer cancel()
				cmd := exec.CommandContext(ctx, e.buy[0], append(e.buy[1:len(e.buy):len(e.buy)], "demo", key)...)
				cmd.Env = append(os.Environ(), "SLUICE_URL="+bad.URL, "SLUICE_TOKEN="+strings.TrimSpace(buyer))
				var out, errs bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &errs
				err = cmd.Run()
				return out.String(), errs.String(), err
			}
			first, stderr, err := buy("basket-" + e.language)
			if err != nil || !regexp.MustCompile(`^[1-9]\d{16,} created\n$`).MatchString(first) {
				t.Fatalf("it printed %q and %q (%v)", first, stderr, err)
			}
			bad.mu.Lock()
			at, replayed := bad.times[`"basket-`+e.language+`"`], bad.replayed[`"basket-`+e.language+`"`]
			bad.mu.Unlock()
			if len(at) != 4 || at[3].Sub(at[2]) < time.Second || !replayed {
				t.Errorf(
					"it sent requests at %v, want four, the fourth a second after the third; the response was replayed: %v",
					at,
					replayed,
				)
			}
			if again, stderr, err := buy("basket-" + e.language); err != nil || again != first {
				t.Errorf("the same purchase again: %q and %q (%v), want %q", again, stderr, err, first)
			}
			if _, stderr, err := buy("another-" + e.language); err == nil || !strings.Contains(stderr, "already-bought") {
				t.Errorf("another purchase: %q (%v), want already-bought", stderr, err)
			}
			if e.webhook != nil {
				takesWebhooks(t, u, e)
			}
		})
	}
}

// takesWebhooks runs an example's receiver, has it pinged, and sends it a forgery.
func takesWebhooks(t *testing.T, u *upProcess, e example) {
	listen := addr(t)
	_, port, _ := strings.Cut(listen, ":")
	made, errOut, code := sluiceRun(t, nil, "webhook", "add", "http://"+listen+"/", "--type", "order.created", "--json",
		"--data", u.data)
	if code != 0 {
		t.Fatal(errOut)
	}
	id, secret := regexp.MustCompile(`"id": "(ep_[^"]+)"`).
		FindStringSubmatch(made),
		regexp.MustCompile(`"secret": "(whsec_[^"]+)"`).
			FindStringSubmatch(made)
	if id == nil || secret == nil {
		t.Fatal(made)
	}
	args := make([]string, len(e.webhook))
	for i, arg := range e.webhook {
		args[i] = strings.ReplaceAll(arg, "PORT", port)
	}
	receiver := &process{
		Program: testenv.Launch(
			t,
			args[0],
			[]string{
				"WEBHOOK_SECRET=" + secret[1],
				"PORT=" + port,
				"TMPDIR=" + t.TempDir(),
				"HOME=" + t.TempDir(),
				"PATH=" + os.Getenv("PATH"),
			},
			args[1:]...),
	}
	post := func() int {
		resp, err := http.Post("http://"+listen+"/", "application/json", strings.NewReader(`{"type":"order.paid","data":{}}`))
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	testenv.Eventually(t, time.Minute, "a forgery is refused", func() bool { return post() == http.StatusUnauthorized })
	// A webhook that could not be processed is sent again, so its id is not stored.
	for range 2 {
		if status := postSigned(t, "http://"+listen+"/", secret[1], "msg_unreadable", "no JSON"); status != 500 {
			t.Errorf("a genuine webhook that it cannot process: status %d, want 500\n%s", status, receiver.output())
		}
	}
	// Several senders may hold the same webhook, after the lease of the first has expired.
	for i := range 10 {
		var senders sync.WaitGroup
		for range 8 {
			senders.Go(func() {
				postSigned(t, "http://"+listen+"/", secret[1], fmt.Sprint("msg_same_", i, "_"), `{"type":"order.paid"}`)
			})
		}
		senders.Wait()
	}
	for i := range 10 {
		processed := func() int { return strings.Count(receiver.output(), fmt.Sprint("order.paid msg_same_", i, "_")) }
		testenv.Eventually(t, time.Minute, "the output is read", func() bool { return processed() > 0 })
		if n := processed(); n != 1 {
			t.Errorf("it processed a webhook of eight concurrent requests %d times, want once\n%s", n, receiver.output())
		}
	}
	log, errOut, code := sluiceRun(t, nil, "webhook", "ping", id[1], "--json", "--data", u.data)
	delivery := regexp.MustCompile(`"id": "([^"]+)"`).FindStringSubmatch(log)
	if code != 0 || delivery == nil {
		t.Fatalf("ping: %s%s\n%s", log, errOut, receiver.output())
	}
	if _, errOut, code := sluiceRun(t, nil, "webhook", "redeliver", id[1], delivery[1], "--data", u.data); code != 0 {
		t.Fatal(errOut)
	}
	testenv.Eventually(t, time.Minute, "it has arrived twice", func() bool {
		out, _, _ := sluiceRun(t, nil, "webhook", "deliveries", id[1], delivery[1], "--json", "--data", u.data)
		return strings.Count(out, `"status": 204`) == 2
	})
	if n := strings.Count(receiver.output(), "ping "+delivery[1]); n != 1 {
		t.Errorf("it processed the webhook %d times, want once\n%s", n, receiver.output())
	}
}

// With an empty secret, any sender can sign a webhook. PHP has no start at which it could fail.
func TestExampleReceiversRejectAnEmptySecret(t *testing.T) {
	t.Parallel()
	for _, e := range examplesOf(t) {
		if _, err := exec.LookPath(e.interpreter); err != nil || e.webhook == nil || e.language == "php" {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		cmd := exec.CommandContext(ctx, e.webhook[0], e.webhook[1:]...)
		_, port, _ := strings.Cut(addr(t), ":")
		cmd.Env = append(os.Environ(), "WEBHOOK_SECRET=whsec_", "PORT="+port)
		out, err := cmd.CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), "usage") {
			t.Errorf("%s: %v, want an exit with the usage\n%s", e.language, err, out)
		}
	}
}

// postSigned sends a signed webhook and returns the status.
func postSigned(t *testing.T, url, secret, id, body string) int {
	t.Helper()
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	signature, err := hook.Sign(id, now, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("Webhook-Signature", signature)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// An example fails and names the reason if its order cannot be read, for example because the token has expired. The
// base URL may end in a slash.
func TestExamplesReportAnOrderThatTheyCannotRead(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/v1/sales/demo/orders" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"order_id":"932718348271616001","sale_id":"demo","status":"queued"}`)
			return
		}
		detail := "Expired."
		if r.URL.Path != "/v1/orders/932718348271616001" {
			detail = "Another path."
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(
			w, `{"type":"about:blank","title":"Unauthorized","status":401,"detail":"`+detail+`","code":"unauthorized"}`)
	}))
	t.Cleanup(server.Close)
	for _, e := range examplesOf(t) {
		if _, err := exec.LookPath(e.interpreter); err != nil {
			t.Logf("%s is not installed, so its example was not run", e.interpreter)
			continue
		}
		cmd := exec.CommandContext(t.Context(), e.buy[0], append(e.buy[1:len(e.buy):len(e.buy)], "demo")...)
		cmd.Env = append(os.Environ(), "SLUICE_URL="+server.URL+"/", "SLUICE_TOKEN=x")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if err == nil || out.Len() > 0 || !strings.Contains(errs.String(), "Expired.") {
			t.Errorf("%s: %v, it printed %q and %q", e.language, err, out.String(), errs.String())
		}
	}
}

// The tokens and callbacks that the plugin for WooCommerce signs are accepted.
func TestWooCommercePluginSigns(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("php"); err != nil {
		t.Log("php is not installed, so the plugin was not run")
		return
	}
	s := startStack(t, shape{backends: 1, workers: 1})
	s.createSale("shoe", 1)
	plugin := func(call string, args ...string) string {
		t.Helper()
		code := "require $argv[1]; echo " + call + ";"
		file := filepath.Join(root, "docs/examples/woocommerce.php")
		out, err := exec.CommandContext(t.Context(), "php", append([]string{"-r", code, "--", file}, args...)...).
			CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	token := plugin("sluice_token('42', $argv[2], time())", tokenSecret)
	bought := do(t, "POST", s.base+"/v1/sales/shoe/orders", token, "")
	if bought.Status != 202 {
		t.Fatalf("a purchase with the plugin's token: %d %s", bought.Status, bought.Body)
	}
	do(t, "GET", s.base+"/v1/orders/"+bought.OrderID+"?wait=20s", token, "")
	body := `{"type":"payment.succeeded","data":{"order_id":"` + bought.OrderID +
		`","amount":1999,"currency":"EUR","reference":"wc-7"}}`
	now := strconv.FormatInt(time.Now().Unix(), 10)
	signature := plugin("sluice_signature('wc-7', (int) $argv[2], $argv[3], $argv[4])", now, body, paymentSecret)
	paid := do(t, "POST", s.base+"/v1/payments", "", body, "Content-Type", "application/json",
		"Webhook-Id", "wc-7", "Webhook-Timestamp", now, "Webhook-Signature", signature)
	if paid.Status != 200 || !strings.Contains(string(paid.Body), `"paid"`) {
		t.Errorf("a callback with the plugin's signature: %d %s", paid.Status, paid.Body)
	}
}

// wordpress replaces the functions of WordPress and WooCommerce that the plugin uses to lead to a payment and to report
// it. They print their calls. All responses of sluice are the same.
const wordpress = `
const SLUICE_URL = 'https://sale', SLUICE_PAYMENT_SECRET = 'whsec_c2VjcmV0', SLUICE_TOKEN_SECRET = 'secret';
class DB { // another tab makes the order while this one waits for the lock
    function prepare($query, ...$values) { return vsprintf(str_replace('%s', "'%s'", $query), $values); }
    function get_var($query) { global $made, $argv; $made = true; return $argv[5] ?? '1'; }
}
$wpdb = new DB();
$made = false;
class Order {
    function get_meta($key) { return '77'; }
    function get_total() { return '19.99'; }
    function get_currency() { return 'EUR'; }
    function get_checkout_payment_url() { return 'https://shop/pay'; }
    function add_order_note($text) { echo "note: $text\n"; }
}
function add_action($hook, $call) {}
function is_user_logged_in() { return true; }
function get_current_user_id() { return 7; }
function wp_unslash($text) { return $text; }
function wc_get_orders($query) { global $made; return $made ? [new Order()] : []; }
function wc_create_order($with) { exit("a second order\n"); }
function wp_remote_get($url, $request = []) { return $url; }
function wp_redirect($url) { echo "redirect: $url\n"; }
function wp_die($text) { exit("die: $text\n"); }
function wc_get_order($id) { return new Order(); }
function wc_get_price_decimals() { return 2; }
function wp_remote_post($url, $request) { echo $request['headers']['webhook-id'], " $url $request[body]\n"; return null; }
function wp_remote_retrieve_response_code($answer) { global $argv; return (int) $argv[2]; }
function wp_remote_retrieve_body($answer) { global $argv; return $argv[3]; }
function wp_remote_retrieve_header($answer, $name) { global $argv; return $name === 'retry-after' ? $argv[4] ?? '' : ''; }
function wp_schedule_single_event($at, $hook, $with) { echo "again: $hook(", implode($with), ") in ", $at - time(), " s\n"; }
`

// The plugin repeats a report until it is recorded or rejected.
func TestWooCommercePluginReportsPayments(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("php"); err != nil {
		t.Log("php is not installed, so the plugin was not run")
		return
	}
	const report = `wc-7 https://sale/v1/payments {"type":"payment.succeeded","data":` +
		`{"order_id":"77","amount":1999,"currency":"EUR","reference":"wc-7"}}` + "\n"
	const rejected = "note: sluice did not accept this payment, it may need a refund: why\n"
	const again, later = "again: sluice_report(7) in 60 s\n", "again: sluice_report(7) in 90 s\n"
	const problem, page = `{"code":"x","detail":"why"}`, "<html>"
	for _, c := range []struct{ status, body, retryAfter, want string }{
		{"200", `{"result":"paid"}`, "", ""}, {"400", problem, "", rejected}, {"404", problem, "", rejected},
		{"409", problem, "", rejected}, {"422", problem, "", rejected}, {"401", problem, "", again},
		{"503", problem, "2", again}, {"429", problem, "90", later}, {"404", page, "", again}, {"", "", "", again},
	} {
		out, err := exec.CommandContext(t.Context(), "php", "-r", wordpress+"require $argv[1]; sluice_report(7);", "--",
			filepath.Join(root, "docs/examples/woocommerce.php"), c.status, c.body, c.retryAfter).CombinedOutput()
		if err != nil || string(out) != report+c.want {
			t.Errorf("status %q, %s: %v\n%s", c.status, c.body, err, out)
		}
	}
}

// The plugin does not lead a buyer to a payment that sluice would not accept.
func TestWooCommercePluginLeadsToPaymentsOfThePriceOnly(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("php"); err != nil {
		t.Log("php is not installed, so the plugin was not run")
		return
	}
	const lead, other = "redirect: https://shop/pay\n", "die: The total of this order is not the price of the sale.\n"
	for _, c := range []struct{ status, price, lock, want string }{
		{"created", `{"amount":1999,"currency":"EUR"}`, "1", lead},
		{"created", `{"amount":2000,"currency":"EUR"}`, "1", other},
		{"created", `{"amount":1999,"currency":"USD"}`, "1", other}, {"created", "null", "1", other},
		{"created", `{"amount":1999,"currency":"EUR"}`, "0", "die: Another tab opens this payment: reload this page.\n"},
		{"paid", `{"amount":1999,"currency":"EUR"}`, "1", "die: This order does not await payment.\n"},
	} {
		body := `{"status":"` + c.status + `","sale_id":"shoe","price":` + c.price + `}`
		out, err := exec.CommandContext(t.Context(), "php", "-r", wordpress+"require $argv[1]; sluice_pay();", "--",
			filepath.Join(root, "docs/examples/woocommerce.php"), "200", body, "", c.lock).CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("%s: %v, it printed %q, want %q", body, err, out, c.want)
		}
	}
}
