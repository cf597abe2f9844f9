package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func sh(t *testing.T, script string) string {
	t.Helper()
	return output(t, "/bin/sh", "-euc", script)
}

const (
	serverEnv = "export SLUICE_SERVER=http://127.0.0.1:8081 SLUICE_ADMIN_TOKEN_FILE=/etc/sluice/credentials/admin-token; "
	stock     = 2000
)

var edges = map[string]string{"edge": "http://127.0.0.1:8080", "gateway": "http://127.0.0.1:80"}

// services are the units that run, in the order of their start.
var services = []string{
	"sluice-backend", "sluice-worker", "sluice-watcher", "sluice-points", "sluice-webhooks", "sluice-web-push",
	"sluice-gateway", "sluice-edge",
}

// TestInside installs the packages, sells through both edges, upgrades and rolls back during the sale, and audits it.
func TestInside(t *testing.T) {
	if !*inside {
		t.Skip("part of TestDebian")
	}
	t.Log(sh(t, "dpkg -i /proof/1.0.0/*.deb && sluice --version"))
	for _, name := range services {
		if state := sh(t, "systemctl is-active "+name+" || true"); strings.TrimSpace(state) != "inactive" {
			t.Errorf("%s is %s before it was enabled", name, state)
		}
		text := sh(t, "systemd-analyze security --offline=true --no-pager "+name+".service | tail -n 1")
		m := regexp.MustCompile(`: ([0-9.]+) `).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("%s: %s", name, text)
		}
		exposure, err := strconv.ParseFloat(m[1], 64)
		if err != nil || exposure >= 2 {
			t.Errorf("%s: want an exposure below 2.0: %s", name, text)
		}
		t.Logf("%s: exposure %s", name, m[1])
	}
	sh(t,
		"systemd-analyze verify --man=no /usr/lib/systemd/system/sluice-*.service /usr/lib/systemd/system/sluice-*.socket")
	for _, page := range []string{"sluice", "sluice-edge", "sluice-sale"} {
		if text := sh(t, "MANWIDTH=100 man --warnings "+page+" 2>&1"); !strings.Contains(text, "DESCRIPTION") ||
			strings.Contains(text, "warning:") {
			t.Errorf("man %s: %s", page, text)
		}
	}
	const complete = ". /usr/share/bash-completion/bash_completion; . /usr/share/bash-completion/completions/sluice; " +
		`COMP_WORDS=(sluice wor) COMP_CWORD=1 COMP_LINE="sluice wor" COMP_POINT=10; __start_sluice; echo "${COMPREPLY[*]}"`
	if found := output(t, "bash", "-c", complete); !strings.Contains(found, "worker") {
		t.Errorf("sluice wor completes to %q", found)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := exec.Command("journalctl", "--no-pager", "-o", "cat", "-u", "sluice-*", "-n", "100").CombinedOutput()
			t.Logf("%s", log)
		}
	})
	install(t)
	sell(t)
	verifyWithKeys(t)
	connectByUnixSocket(t)
	purge(t)
}

// install configures the services as a new user does after dpkg.
func install(t *testing.T) {
	t.Helper()
	sh(t, `systemctl start redis-server postgresql
redis-cli config set appendonly yes >/dev/null
redis-cli config set maxmemory-policy noeviction >/dev/null
su postgres -c "psql -qc \"create user sluice password 'pw'\" -c \"create database sluice owner sluice encoding 'utf8' locale 'C' template template0\""
umask 077
echo redis://127.0.0.1:6379/0 >/etc/sluice/credentials/redis-url
echo postgres://sluice:pw@127.0.0.1:5432/sluice?sslmode=disable >/etc/sluice/credentials/database-url
echo redis://127.0.0.1:6379/1 >/etc/sluice/credentials/limit-redis-url
sluice group vapid --json | sed -n 's/.*"private": *"\([^"]*\)".*/\1/p' >/etc/sluice/credentials/vapid-key
echo SLUICE_WEB_PUSH_CONTACT=mailto:shop@example.com >>/etc/sluice/web-push.env
mkdir -p /etc/systemd/system/sluice-gateway.socket.d
printf '[Socket]\nListenStream=\nListenStream=127.0.0.1:80\n' >/etc/systemd/system/sluice-gateway.socket.d/listen.conf
systemctl disable --now --quiet nginx
systemctl daemon-reload
systemctl enable --now --quiet `+strings.Join(services, " ")+" sluice-gateway.socket")
	ready(t)
	// One address buys everything: its rule must allow it. The gateway loads the file; the edge needs a reload.
	sh(t, `sed -i 's/rate = "20r\/s", burst = 40/rate = "10000r\/s", burst = 10000/' /etc/sluice/policy.lua
sed -i '/^  rules = {/a { name = "all-edges", key = "ip", rate = "10000r/s", burst = 10000, scope = "fleet", on_error = "allow" },' \
  /etc/sluice/policy.lua
sluice policy check /etc/sluice/policy.lua || true
systemctl reload sluice-edge
`+serverEnv+"sluice sale create --id shoe --title Shoe --stock "+strconv.Itoa(stock)+" --price 99.90EUR")
	for _, name := range services {
		t.Log(name, strings.Join(strings.Fields(sh(t, "systemctl show -p User -p MainPID -p DynamicUser "+name+
			"; ps -o user:40= -p $(systemctl show --value -p MainPID "+name+")")), " "))
	}
}

// ready waits for the backend and both edges.
func ready(t *testing.T) {
	t.Helper()
	wait(t, "the backend is ready", func() bool {
		return exec.CommandContext(t.Context(), "sluice", "health", "--server", "http://127.0.0.1:8081").Run() == nil
	})
	for name, edge := range edges {
		wait(t, name+" is ready", func() bool {
			res, err := shopper.Get(edge + "/healthz")
			return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
		})
	}
}

// wait polls until done, for at most two minutes.
func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for !done() {
		select {
		case <-late:
			t.Fatal("still waiting until ", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// attempts counts responses by edge and status.
type attempts struct {
	sync.Mutex
	counts map[string]int
}

func (a *attempts) add(key string) {
	a.Lock()
	defer a.Unlock()
	a.counts[key]++
}

// sell sells each unit to another buyer, half of them through each edge, while the packages change.
func sell(t *testing.T) {
	t.Helper()
	secret := strings.TrimSpace(sh(t, "cat /etc/sluice/credentials/token-secret"))
	seen := attempts{counts: map[string]int{}}
	var changing atomic.Bool // a package is being changed, or was changed less than a drain ago
	var sold atomic.Int64
	buyers := make(chan int)
	var group sync.WaitGroup
	for worker := range 16 {
		name := []string{"edge", "gateway"}[worker%2]
		group.Go(func() {
			for n := range buyers {
				for {
					during := changing.Load()
					status, err := buy(t.Context(), edges[name], secret, n)
					during = during || changing.Load()
					if err != nil {
						status = 0
					}
					seen.add(fmt.Sprintf("%s %d", name, status))
					if status == http.StatusAccepted {
						sold.Add(1)
						break
					}
					if status != http.StatusServiceUnavailable || !during {
						t.Errorf("%s: status %d, %v, while the packages change: %v", name, status, err, during)
						if !during {
							break
						}
					}
					time.Sleep(time.Second) //nolint:forbidigo // the Retry-After of a buyer, whose limit is 2r/s
				}
			}
		})
	}
	// 60 buyers a second, so that some come during each change. A quarter of the units is left for the time after it,
	// also if a slow machine needs longer for the change than for the sale.
	changed := make(chan struct{}, 2)
	group.Go(func() {
		defer close(buyers)
		tick := time.NewTicker(time.Second / 60)
		defer tick.Stop()
		for n := range stock {
			if n == stock/2 || n == stock*3/4 {
				<-changed
			}
			<-tick.C
			buyers <- n
		}
	})
	for i, version := range []string{"1.0.1", "1.0.0"} {
		wait(t, "a quarter or half of the units is sold", func() bool { return sold.Load() >= int64((i+1)*stock/4) })
		before := pids(t)
		changing.Store(true)
		start := time.Now()
		out := sh(t, "dpkg -i /proof/"+version+"/*.deb 2>&1; sluice --version")
		took := time.Since(start)
		wait(t, "the backend is ready", func() bool {
			return exec.CommandContext(t.Context(), "sluice", "health", "--server", "http://127.0.0.1:8081").Run() == nil
		})
		time.Sleep(3 * time.Second) //nolint:forbidigo // edges use the backend again within this time, see docs/operations.md
		changing.Store(false)
		t.Logf("%s after %d units in %v\n%s", version, sold.Load(), took, out)
		if !strings.Contains(out, version) {
			t.Errorf("sluice --version is not %s", version)
		}
		for name, pid := range pids(t) {
			if same := pid == before[name]; same != (name == "sluice-edge") || pid == "0" {
				t.Errorf("%s: process %s before, %s after", name, before[name], pid)
			}
		}
		changed <- struct{}{}
		sh(t, "logrotate --force /etc/logrotate.d/sluice-edge")
	}
	group.Wait()
	t.Log(seen.counts)
	want := strconv.Itoa(seen.counts["edge 202"])
	wait(t, "the access logs have "+want+" accepted purchases of the edge", func() bool { // written once a second
		return want == strings.TrimSpace(sh(t, `cd /var/lib/private/sluice-edge/logs
(cat access.log access.log.1; zcat access.log.2.gz) | grep -c '"status":202'`))
	})
	for name, metrics := range map[string]string{"gateway": "127.0.0.1:9147", "edge": "127.0.0.1:9148"} {
		res, err := shopper.Get("http://" + metrics + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		if !regexp.MustCompile(`(?m)^sluice_edge_fleet_leases_total\{result="granted"\} [1-9]`).Match(text) {
			t.Errorf("%s: no lease for the rule of the fleet: %v, %v\n%s", name, err, res.Body.Close(), text)
		}
	}
	wait(t, "every order is a row", func() bool {
		rows := sh(t, `su postgres -c "psql -qtA sluice -c 'select count(*) from orders'"`)
		return strings.TrimSpace(rows) == strconv.Itoa(stock)
	})
	t.Log(sh(t, serverEnv+"sluice sale audit shoe"))
	for _, name := range services {
		if n := strings.TrimSpace(sh(t, "systemctl show --value -p NRestarts "+name)); n != "0" {
			t.Errorf("%s was restarted %s times after a failure", name, n)
		}
	}
	t.Log(sh(t, "journalctl --no-pager -o cat -p warning -u 'sluice-*' | head -n 20"))
}

// verifyWithKeys replaces the token secret by a key. An upgrade does not create the secret again.
func verifyWithKeys(t *testing.T) {
	t.Helper()
	sh(t, `rm /etc/sluice/credentials/token-secret
sluice keys new --kid shop >/run/private.json
sluice keys public /run/private.json >/etc/sluice/keys.json
for unit in backend edge gateway; do echo SLUICE_TOKEN_KEYS=/etc/sluice/keys.json >>/etc/sluice/$unit.env; done
dpkg -i /proof/1.0.1/*.deb
systemctl restart sluice-edge
test ! -e /etc/sluice/credentials/token-secret`)
	ready(t)
}

// connectByUnixSocket moves the backend to a Unix socket, which the users of both edges can open.
func connectByUnixSocket(t *testing.T) {
	t.Helper()
	sh(t, `cd /etc/sluice
sed -i 's|^SLUICE_LISTEN=.*|SLUICE_LISTEN=unix:/run/sluice/backend.sock|' backend.env
sed -i 's|^SLUICE_UPSTREAM=.*|SLUICE_UPSTREAM=unix:/run/sluice/backend.sock|' edge.env gateway.env
systemctl restart sluice-backend sluice-edge sluice-gateway`)
	ready(t)
	for name, edge := range edges {
		wait(t, name+" reaches the backend", func() bool {
			res, err := shopper.Get(edge + "/v1/sales/shoe")
			return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
		})
	}
}

// purge removes the packages. The journal stays.
func purge(t *testing.T) {
	t.Helper()
	sh(t, `dpkg -P sluice-edge sluice
for gone in /usr/bin/sluice /etc/sluice/credentials /var/lib/sluice-edge /var/lib/private/sluice-edge; do
  test ! -e $gone && test ! -L $gone || { echo "$gone is left"; exit 1; }
done
test -d /var/lib/private/sluice-backend/journal`)
}

func pids(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range services {
		all[name] = strings.TrimSpace(sh(t, "systemctl show --value -p MainPID "+name))
	}
	return all
}

var shopper = &http.Client{Timeout: 20 * time.Second}

// buy sends one purchase of buyer n; a repeated one has the same key.
func buy(ctx context.Context, edge, secret string, n int) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, edge+"/v1/sales/shoe/orders", http.NoBody)
	if err != nil {
		return 0, err
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." +
		encode(fmt.Appendf(nil, `{"sub":"buyer-%d","exp":%d}`, n, time.Now().Add(time.Hour).Unix()))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	req.Header.Set("Authorization", "Bearer "+text+"."+encode(mac.Sum(nil)))
	req.Header.Set("Idempotency-Key", fmt.Sprintf("purchase-%d", n))
	res, err := shopper.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, errors.Join(err, res.Body.Close())
}
