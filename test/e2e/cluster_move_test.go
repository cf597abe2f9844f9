package e2e

import (
	"bufio"
	"flag"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/test/testenv"
)

var shardMoves = flag.Int("shard-moves", 2, "moves of TestShardMoves, and killed ones of TestShardMoveIsKilled")

// moveShop is a clusterShop during which the shard of the first sale moves between the first two masters.
type moveShop struct {
	*cutShop
	gaps gaps // of the sale that moves
}

// gaps measures the longest time without an accepted order.
type gaps struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
}

func (g *gaps) add(_ time.Time, ok bool) {
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); g.last.IsZero() {
		g.last = now
	} else {
		g.longest, g.last = max(g.longest, now.Sub(g.last)), now
	}
}

// reset returns the longest gap since the last reset.
func (g *gaps) reset() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	longest := g.longest
	g.longest = 0
	return longest
}

func newMoveShop(t *testing.T) *moveShop {
	c := &moveShop{cutShop: &cutShop{clusterShop: startClusterShop(t, 1_000_000, true)}} // more than the test sells
	c.ids = c.sales
	for i, id := range c.ids {
		one := &crowd{s: c.stack, pause: 30 * time.Millisecond}
		if i == 0 {
			one.answered = c.gaps.add
		}
		c.crowds = append(c.crowds, one)
		one.start(id, 3)
	}
	for _, one := range c.crowds {
		one.await(100)
	}
	return c
}

// masters returns the master of the shard that moves, and the other one of the first two.
func (c *moveShop) masters() (source, target *testenv.Redis) {
	source, target = c.cluster.Owner(c.shards[0].Guard()), c.cluster.Owner(c.shards[1].Guard())
	if source == target {
		target = c.cluster.Nodes[0]
	}
	return source, target
}

func (c *moveShop) args(target *testenv.Redis) []string {
	return []string{"shard", "move", fmt.Sprint(int(c.shards[0])), "--to", target.Addr}
}

// move moves the shard and waits for further orders.
func (c *moveShop) move(target *testenv.Redis) {
	c.t.Helper()
	var out string
	testenv.Eventually(c.t, time.Minute, "the shard moves", func() (done bool) {
		var errOut string
		var code int
		out, errOut, code = sluiceRun(c.t, c.env, c.args(target)...)
		if code != 0 { // for example while the lock of a killed move has not expired
			c.t.Log(errOut)
		}
		return code == 0
	})
	c.sells()
	c.t.Logf("%s; longest time without an order %v", strings.TrimSpace(out), c.gaps.reset().Round(time.Millisecond))
	if now := c.cluster.Owner(c.shards[0].Guard()); now != target {
		c.t.Errorf("the shard is on %s, want %s", now.Addr, target.Addr)
	}
}

// sells waits for further orders of the moved shard.
func (c *moveShop) sells() { c.crowds[0].await(c.crowds[0].accepted.Load() + 50) }

// undisturbed verifies that buyers of the other sales got no 503 because of the move.
func (c *moveShop) undisturbed() {
	c.t.Helper()
	for i, one := range c.crowds[1:] {
		if n := one.rejected.Load(); n > 0 {
			c.t.Errorf("buyers of the sale on master %d got 503 %d times", i+1, n)
		}
	}
}

// `sluice shard move` moves a shard there and back during purchases: no order is lost or sold twice, and buyers of
// other shards get no 503.
func TestShardMoves(t *testing.T) {
	t.Parallel()
	c := newMoveShop(t)
	c.gaps.reset()
	for range *shardMoves {
		_, target := c.masters()
		c.move(target)
	}
	c.undisturbed()
	c.finish()
}

// The command is killed at each step. The shard sells again after a rebuild, or after the next run of the command.
func TestShardMoveIsKilled(t *testing.T) {
	t.Parallel()
	c := newMoveShop(t)
	steps := []string{"copy", "release", "hold", "verify", "mark", "flip"}
	for i := range *shardMoves {
		source, target := c.masters()
		step := steps[i%len(steps)]
		named := c.named(target)
		c.killAt(step, target)
		killed := time.Now()
		sold := c.crowds[0].accepted.Load()
		again := false
		testenv.Eventually(t, time.Minute, "the shard sells, or a backend names the command", func() bool {
			again = c.named(target) > named
			return c.crowds[0].accepted.Load() >= sold+50 || again
		})
		if again {
			if out, errOut, code := sluiceRun(t, c.env, c.args(target)...); code != 0 {
				t.Fatalf("shard move again: exit %d, %s%s", code, out, errOut)
			}
		}
		c.sells()
		now := c.cluster.Owner(c.shards[0].Guard())
		t.Logf("%d: killed at %s, moved: %v, run again: %v; selling after %v", i+1, step, now == target, again,
			time.Since(killed).Round(time.Millisecond))
		if now == source { // the remains of the killed move are no obstacle
			c.move(target)
		}
	}
	c.undisturbed()
	c.finish()
}

// named returns how often the logs of the backends have named the command that finishes a move.
func (c *moveShop) named(target *testenv.Redis) (n int) {
	for _, b := range c.backends {
		n += strings.Count(b.output(), "sluice "+strings.Join(c.args(target), " "))
	}
	return n
}

// killAt runs the command and kills it when it announces a step.
func (c *moveShop) killAt(step string, target *testenv.Redis) {
	c.t.Helper()
	cmd := exec.Command(binary, c.args(target)...)
	cmd.Env, cmd.Dir = c.stack.env, c.t.TempDir()
	progress, err := cmd.StderrPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	for lines := bufio.NewScanner(progress); lines.Scan(); {
		if strings.Contains(lines.Text(), ": "+step) {
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
