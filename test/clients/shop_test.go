package clients

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"sluice/client"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

const (
	tokenSecret = "clients-token-secret-0123456789abcdefghijk"
	adminToken  = "clients-admin-token-0123456789abcdefghijk"
	buyerName   = "ann"
)

var binary string // sluice

func TestMain(m *testing.M) { os.Exit(testenv.MainWithSluice(m, &binary)) }

// shop is a running sluice with one open sale, which sells one unit per buyer.
type shop struct {
	base, admin string // addresses of the edge and of the admin listener
	sale        string
	buyer       string // token
}

func openShop(t *testing.T) shop {
	t.Helper()
	listen, admin := testenv.FreeAddress(t), testenv.FreeAddress(t)
	testenv.Launch(t, binary, []string{"SLUICE_TOKEN_SECRET=" + tokenSecret, "SLUICE_ADMIN_TOKEN=" + adminToken},
		"up", "--listen", listen, "--admin", admin, "--data", t.TempDir())
	s := shop{base: "http://" + listen, admin: "http://" + admin, sale: "shoe"}
	testenv.AwaitOK(t, s.base+"/readyz")
	own, err := client.NewAdmin(s.admin, adminToken)
	if err != nil {
		t.Fatal(err)
	}
	price := client.Price{Amount: 9990, Currency: "EUR"}
	if _, err := own.CreateSale(t.Context(), client.NewSale{
		ID: s.sale, Title: "The shoe", Stock: 3, Price: price, OpensAt: time.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	s.buyer = tokentest.Sign(t, tokenSecret, buyerName, time.Hour)
	return s
}

// run runs a program of Node.js in this directory.
func run(t *testing.T, env []string, args ...string) {
	t.Helper()
	if _, err := os.Stat("node_modules"); err != nil {
		t.Fatalf("%v: run make clients", err)
	}
	cmd := exec.CommandContext(t.Context(), testenv.Find(t, args[0], "npm"), args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", args, err, out)
	}
}

// The configuration recommended-strict makes every warning an error.
func TestRedoclyReportsNothing(t *testing.T) {
	t.Parallel()
	run(t, nil, "npm", "run", "--silent", "lint")
}

func TestTypeScriptClientBuys(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	run(t, []string{"SLUICE_URL=" + s.base, "SALE=" + s.sale, "BUYER_TOKEN=" + s.buyer}, "node", "generated/buyer.js")
}
