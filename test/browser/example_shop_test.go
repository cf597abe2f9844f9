package browser

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/client"
	"sluice/test/testenv"
)

// shopDeployment is sluice beside the shop of docs/examples/go/shop, as docs/shop.md describes it: the nginx edge, a
// backend, a worker and the sender of webhooks, with the shop's keys by URL.
type shopDeployment struct {
	t                  *testing.T
	sales, shop, admin string // origins
	database           string // URL
	shopProgram        *testenv.Program
}

// sluice runs a command of an admin, and returns what it prints.
func (a *shopDeployment) sluice(args ...string) string {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), "SLUICE_ADMIN_TOKEN="+adminToken, "SLUICE_SERVER="+a.admin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		a.t.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func startShopDeployment(t *testing.T) *shopDeployment {
	dir := t.TempDir()
	program, hookSecret := filepath.Join(dir, "shop"), filepath.Join(dir, "hook.secret")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../..", "-o", program, "./docs/examples/go/shop").
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	paymentSecret := "whsec_" + base64.StdEncoding.EncodeToString([]byte(rand.Text()+rand.Text()))
	shopListen, upstream := testenv.FreeAddress(t), testenv.FreeAddress(t)
	edge, admin := testenv.FreeAddress(t), testenv.FreeAddress(t)
	a := &shopDeployment{t: t, sales: "http://" + edge, shop: "http://" + shopListen, admin: "http://" + admin}
	a.shopProgram = testenv.Launch(t, program, []string{
		"LISTEN=" + shopListen, "SALES=" + a.sales, "PAYMENT_SECRET=" + paymentSecret, "WEBHOOK_SECRET_FILE=" + hookSecret,
	})
	pg, redis := testenv.SharedPostgres(t), testenv.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	a.database = pg.URL
	env := []string{
		"SLUICE_ADMIN_TOKEN=" + adminToken, "SLUICE_PAYMENT_SECRET=" + paymentSecret,
		"SLUICE_TOKEN_KEYS=" + a.shop + "/jwks.json", "SLUICE_TOKEN_ISSUER=" + a.shop, "SLUICE_TOKEN_AUDIENCE=sluice",
		"SLUICE_SIGN_IN=" + a.shop + "/login?back={url}", "SLUICE_CHECKOUT=" + a.shop + "/pay?order={order}&sale={sale}",
		"SLUICE_REDIS_URL=redis://" + redis.Addr + "/0", "SLUICE_DATABASE_URL=" + pg.URL,
	}
	private := []string{"--allow-private", "127.0.0.0/8"} // the shop runs on this machine
	testenv.Launch(t, binary, env, append([]string{"backend", "--listen", upstream, "--admin", admin}, private...)...)
	testenv.Launch(t, binary, env, "worker", "--metrics", testenv.FreeAddress(t))
	webhooks := []string{"group", "run", "webhooks", "--metrics", testenv.FreeAddress(t)}
	testenv.Launch(t, binary, env, append(webhooks, private...)...)
	testenv.Launch(t, binary, env, "edge", "--listen", edge, "--upstream", "http://"+upstream, "--prefix", t.TempDir())
	testenv.AwaitOK(t, a.sales+"/readyz")

	printed := a.sluice("webhook", "add", a.shop+"/hooks/sluice")
	secret := regexp.MustCompile(`whsec_\S+`).FindString(printed)
	if secret == "" {
		t.Fatalf("no secret in %q", printed)
	}
	if err := os.WriteFile(hookSecret, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// webhooks returns the types of the webhooks about a buyer's orders that the shop has received.
func (a *shopDeployment) webhooks(buyer string) (types []string) {
	a.t.Helper()
	resp, err := http.Get(a.shop + "/webhooks")
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var all struct {
		Webhooks []client.Webhook
		Received int
	}
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		a.t.Fatal(err)
	}
	if all.Received != len(all.Webhooks) {
		a.t.Errorf("the shop received %d webhooks, %d of them different", all.Received, len(all.Webhooks))
	}
	for _, hook := range all.Webhooks {
		if hook.Data.Buyer == buyer {
			types = append(types, hook.Type)
		}
	}
	return types
}

// signingKey returns the id of the key with which the shop signs.
func (a *shopDeployment) signingKey() string {
	a.t.Helper()
	resp, err := http.Get(a.shop + "/jwks.json")
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var set struct{ Keys []struct{ Kid string } }
	if err := json.NewDecoder(resp.Body).Decode(&set); err != nil || len(set.Keys) == 0 {
		a.t.Fatalf("%v, %v", set, err)
	}
	return set.Keys[0].Kid
}

// awaitWebhooks waits until the shop has received these webhooks about a buyer.
func (a *shopDeployment) awaitWebhooks(buyer string, want ...string) {
	a.t.Helper()
	testenv.Eventually(a.t, 2*time.Minute, fmt.Sprint(want, " about ", buyer), func() bool {
		return strings.Join(a.webhooks(buyer), " ") == strings.Join(want, " ")
	})
}

// buy signs a buyer in at the shop, from the page of a sale, and buys there.
func (a *shopDeployment) buy(buyer, saleID string) *tab {
	a.t.Helper()
	b := open(a.t, newPerson(a.t), a.sales+"/s/"+saleID)
	b.ready("Sign in to buy")
	b.click(`document.getElementById("buy")`)
	b.await("the sign-in of the shop", `document.querySelector("input[name=name]")`)
	b.enter("name", buyer)
	b.text("Sign in")
	b.ready("Buy now")
	b.click(`document.getElementById("buy")`)
	b.orderIs("confirmed")
	return b
}

// checkOut follows the link of the page to the shop's checkout.
func (b *tab) checkOut() {
	b.t.Helper()
	b.await("the way to the checkout", `document.querySelector("a.pay:not([hidden])")`)
	b.click(`document.querySelector("a.pay")`)
	b.loaded("Checkout")
}

// loaded waits until the page of the shop with this title is complete.
func (b *tab) loaded(title string) {
	b.t.Helper()
	b.await(title, `document.readyState === "complete" && document.querySelector("h1")?.textContent === `+quote(title))
}

// Buyers sign in at a shop, buy on the page, pay in the shop's checkout, and the shop receives webhooks. One payment
// arrives after the hold has ended, and becomes a refund due. The shop replaces its key during the test.
func TestPurchasesAtTheExampleShop(t *testing.T) {
	a := startShopDeployment(t)
	opens := time.Now().Add(-time.Second).UTC().Format(time.RFC3339)
	for id, price := range map[string]string{"shoe": "99.90EUR", "boot": "12.50EUR"} {
		a.sluice("sale", "create", "--id", id, "--title", "The "+id, "--stock", "5", "--price", price, "--hold", "15m",
			"--opens", opens)
	}

	late := a.buy("ben", "boot") // pays only after the hold has ended
	late.checkOut()
	first := a.signingKey()
	a.shopProgram.Signal(syscall.SIGHUP) // the tokens of the next buyer name a key that sluice has not seen
	testenv.Eventually(t, time.Minute, "a new key", func() bool { return a.signingKey() != first })

	b := a.buy("ann", "shoe")
	b.await("the time left", `document.querySelector("#orders .due").textContent.includes("left.")`)
	b.checkOut()
	if text := b.seen(); !strings.Contains(text, "The shoe: 99.90 EUR") {
		t.Errorf("the checkout shows\n%s", text)
	}
	b.text("Pay")
	b.loaded("Thank you")
	b.click(`document.querySelector("a")`)
	b.orderIs("paid")
	b.clean()
	a.awaitWebhooks("ann", "order.created", "order.paid")

	execSQL(t, a.database, "UPDATE orders SET due_at = now() WHERE sale_id = 'boot'") // the hold ends
	a.awaitWebhooks("ben", "order.created", "order.cancelled")
	late.text("Pay")
	late.loaded("Too late")
	late.eval(`document.querySelector("a").click()`)
	late.orderIs("not paid in time")
	late.ready("Buy now") // the unit is on sale again, also for this buyer
	late.clean()
	due := a.sluice("payment", "list")
	payment := regexp.MustCompile(`(?m)^(\d+) .*12\.50 EUR`).FindStringSubmatch(due)
	if payment == nil {
		t.Fatalf("no refund is due:\n%s", due)
	}
	a.sluice("payment", "settle", payment[1], "--note", "refunded at the provider")
	if left := a.sluice("payment", "list"); strings.Contains(left, "12.50 EUR") {
		t.Errorf("still due:\n%s", left)
	}
	for saleID, left := range map[string]string{"shoe": "4", "boot": "5"} {
		if audit := a.sluice("sale", "audit", saleID); !strings.Contains(audit, "balanced") {
			t.Errorf("%s: %s", saleID, audit)
		}
		if shown := a.sluice("sale", "show", saleID); !regexp.MustCompile(`(?m)^left\s+` + left + `\b`).MatchString(shown) {
			t.Errorf("%s of %s are left:\n%s", left, saleID, shown)
		}
	}
	if hooks := strings.Join(append(a.webhooks("ann"), a.webhooks("ben")...),
		" "); hooks != "order.created order.paid order.created order.cancelled" {
		t.Errorf("the shop received %s", hooks)
	}
}
