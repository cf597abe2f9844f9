package e2e

import (
	"fmt"
	"syscall"
	"testing"

	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// groupRun is sluice up with the sale "s" of 5000 units, and two instances of a group that a test kills.
type groupRun struct {
	*testing.T
	up        *upProcess
	database  string // its URL
	orders    *store.Store
	launch    func() *process
	instances [2]*process
}

// startGroup starts them on servers of their own. env and flags are those of each program.
func startGroup(t *testing.T, group string, env []string, flags ...string) *groupRun {
	t.Helper()
	redis, pg := testenv.StartRedis(t), testenv.SharedPostgres(t)
	flags = append([]string{"--redis", redis.URL, "--database", pg.URL}, flags...)
	g := &groupRun{T: t, up: startUpWith(t, env, t.TempDir(), flags...), database: pg.URL}
	if out, errOut, code := sluiceRun(t, nil, "sale", "create", "--id", "s", "--title", "S", "--stock", "5000",
		"--price", "19.99EUR", "--data", g.up.data); code != 0 {
		t.Fatal(out, errOut)
	}
	g.launch = func() *process { return launch(t, env, append([]string{"group", "run", group}, flags...)...) }
	g.instances = [2]*process{g.launch(), g.launch()}
	g.orders = storetest.Open(t, pg.URL)
	return g
}

// kill kills the instances in turn; n counts the kills. Another instance takes the place.
func (g *groupRun) kill(n int) {
	g.instances[n%2].crash()
	g.instances[n%2] = g.launch()
}

// stop ends the instances, which exit with 0.
func (g *groupRun) stop() {
	g.Helper()
	for _, p := range g.instances {
		p.awaitUp(g)
		if code := p.end(syscall.SIGTERM); code != 0 {
			g.Errorf("SIGTERM: exit %d\n%s", code, fmt.Sprint(p.output()))
		}
	}
}
