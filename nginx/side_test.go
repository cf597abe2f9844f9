package nginx

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/test/edgetest"
	"sluice/test/testenv"
)

// decision is one line of bound.conf's log.
type decision struct {
	allowed bool
	at      int64 // us
	worker  int
}

// logTimes replaces the end of clock.lua. The replacement stores each time that it returns in $decided. The last one
// before a verdict is the time of the decision.
const logTimes = `
local now = _M.now
function _M.now()
  local at = now()
  if ngx.get_phase() == "set" or ngx.get_phase() == "access" then
    ngx.var.decided = ("%.0f"):format(at)
  end
  return at
end

return _M
`

// boundServer is the edge with nothing behind it: testdata/bound.conf.
type boundServer struct {
	t       *testing.T
	dir     string
	address string
	stop    func() // ends it and waits until the log is complete
	reload  func()
}

func startBoundServer(t *testing.T, f *variant, workers int, rate float64, burst int) *boundServer {
	t.Helper()
	bin := requireBinary(t)
	scratch := t.TempDir()
	policy := filepath.Join(scratch, "policy.lua")
	text := fmt.Sprintf(`return { rules = { { name = "hot", key = "ip", rate = "%gr/s", burst = %d } } }`, rate, burst)
	if err := os.WriteFile(policy, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &boundServer{t: t, dir: filepath.Join(scratch, "edge"), address: testenv.FreeAddress(t)}
	cfg, err := Config{
		Shared:  settings("127.0.0.1:1"),
		Listen:  s.address,
		Policy:  policy,
		Workers: workers,
	}.checked()
	if err != nil {
		t.Fatal(err)
	}
	p, err := openPrefix(s.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	if err := p.fill(cfg, requireBinary(t)); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		"testdata/bound.conf": "nginx/bound.conf", "testdata/bound.lua": "lua/edge/bound.lua",
	} {
		source, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.dir, to), source, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f.trim(t, s.dir)
	rewrite(t, s.dir+"/lua/edge/sluice/clock.lua", "\nreturn _M\n", logTimes)
	// bound.conf has a log of its own.
	rewrite(t, s.dir+"/nginx/runtime/http.conf", accessLog, "")
	log := &testenv.Buffer{}
	cmd := exec.Command(bin.path, bin.args(s.dir, "bound.conf", "daemon off")...)
	cmd.Env, cmd.Stderr, cmd.WaitDelay = environment(secret), log, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	ended := make(chan error, 1)
	if err := startBound(cmd, ended); err != nil {
		t.Fatal(err)
	}
	s.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		<-ended
		if strings.Contains(log.String(), "[error]") || strings.Contains(log.String(), "[emerg]") || t.Failed() {
			t.Errorf("the log of nginx:\n%s", log)
		}
	})
	t.Cleanup(s.stop)
	s.reload = func() { _ = cmd.Process.Signal(syscall.SIGHUP) }
	testenv.Eventually(t, time.Minute, "nginx answers", func() bool { return s.get("/has-resty") != "" })
	return s
}

func (s *boundServer) get(path string) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + s.address + path)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	out, _ := io.ReadAll(response.Body)
	return string(out)
}

// flood sends requests over several connections for this time. It does not count the answers, because the log has the
// decisions.
func (s *boundServer) flood(path string, length time.Duration) {
	if wrk, err := exec.LookPath("wrk"); err == nil && length >= time.Second {
		seconds := strconv.Itoa(int(length / time.Second))
		if out, err := exec.Command(wrk, "-t1", "-c48", "-d"+seconds+"s", "http://"+s.address+path).
			CombinedOutput(); err != nil {
			s.t.Fatalf("wrk: %v\n%s", err, out)
		}
		return
	}
	end := time.Now().Add(length)
	var clients sync.WaitGroup
	for range 24 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for time.Now().Before(end) {
				if response, err := client.Get("http://" + s.address + path); err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
			}
		})
	}
	clients.Wait()
}

// decisions returns the decisions in the log, in the order in which they were made.
func (s *boundServer) decisions() []decision {
	s.t.Helper()
	file, err := os.Open(filepath.Join(s.dir, "logs/bound.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	var all []decision
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		verdict, rest, _ := strings.Cut(lines.Text(), " ")
		at, worker, _ := strings.Cut(rest, " ")
		if verdict == "" {
			continue // the client disconnected before a decision
		}
		d := decision{allowed: verdict == "allow"}
		if d.at, err = strconv.ParseInt(at, 10, 64); err != nil {
			s.t.Fatalf("a decision without its time: %q", lines.Text())
		}
		d.worker, _ = strconv.Atoi(worker)
		if verdict != "allow" && verdict != "deny" {
			s.t.Fatalf("the log has %q", lines.Text())
		}
		all = append(all, d)
	}
	// Of several requests at one instant, the admitted ones were decided first.
	slices.SortStableFunc(all, func(a, b decision) int {
		if a.at != b.at || a.allowed == b.allowed {
			return cmp.Compare(a.at, b.at)
		}
		return map[bool]int{true: -1, false: 1}[a.allowed]
	})
	return all
}

// judged is the result of a run.
type judged struct {
	admitted, requests int
	seconds            float64
	bound              float64 // for the whole run
	// of all intervals, the largest (admitted - rate * length) / (burst + 1); above 1, the bound is exceeded
	fullest float64
	workers int
	silent  float64 // seconds in which the bucket was empty and no request arrived
}

// judge computes the result of a run from the times of its decisions.
func judge(all []decision, rate float64, burst int) judged {
	j := judged{requests: len(all)}
	first, last := all[0].at, all[len(all)-1].at
	j.seconds = float64(last-first) / 1e6
	j.bound = float64(int64(rate*j.seconds)) + float64(burst) + 1
	workers := map[int]bool{}
	lowest := 0.0                                   // minimum of n - rate*t before admitted requests
	empty, before := float64(first), float64(first) // time at which the bucket is empty; previous request
	for _, d := range all {
		at := float64(d.at)
		previous := before
		before = at
		if !d.allowed {
			continue
		}
		workers[d.worker] = true
		j.silent += max(0, at-max(empty, previous)) / 1e6
		empty = max(empty, at) + 1e6/rate
		level := float64(j.admitted) - rate*float64(d.at-first)/1e6
		if j.admitted == 0 || level < lowest {
			lowest = level
		}
		j.admitted++
		j.fullest = max(j.fullest, (level+1-lowest)/float64(burst+1))
	}
	j.workers = len(workers)
	return j
}

// asModelled returns an error for the first decision that differs from that of the model.
func asModelled(all []decision, rate int64, burst int) error {
	var b edgetest.Bucket
	perMicro := big.NewRat(rate, 1e6)
	for i, d := range all {
		e, passes := b.Excess(perMicro, int64(burst), d.at)
		if passes != d.allowed {
			return fmt.Errorf("decision %d of %d, at %d us: the edge admits %v, and the model %v", i+1, len(all), d.at,
				d.allowed, passes)
		}
		if passes {
			b.Store(e, d.at)
		}
	}
	return nil
}

// One client sends far more requests than the rate to several workers, and the edge is reloaded after half of the time.
// Every decision equals that of the model, so every interval keeps the bound. `make edge-bound` runs all combinations
// of workers, rates and bursts for 10 s each. It also measures resty.limit.req if that is installed.
func TestBoundSideBySide(t *testing.T) {
	variants(t, boundSideBySide)
}

func boundSideBySide(t *testing.T, f *variant) {
	length := 500 * time.Millisecond
	if text := os.Getenv("SLUICE_BOUND_SECONDS"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		length = time.Duration(seconds * float64(time.Second))
	}
	for _, workers := range []int{2, 4} {
		for _, rate := range []int64{10, 1000, 20000} {
			for _, burst := range []int{0, 10, 1000} {
				if quick := workers == 2 && (rate == 1000 && burst == 10 || rate == 20000); length < time.Second && !quick {
					continue
				}
				t.Run(fmt.Sprintf("%d workers %d per s burst %d", workers, rate, burst),
					func(t *testing.T) { sideBySide(t, f, workers, rate, burst, length) })
			}
		}
	}
}

func sideBySide(t *testing.T, f *variant, workers int, rate int64, burst int, length time.Duration) {
	paths := []string{"/edge"}
	if length >= time.Second {
		paths = append(paths, "/alone")
	}
	for i := 0; i < len(paths); i++ {
		s := startBoundServer(t, f, workers, float64(rate), burst)
		if i == 0 && length >= time.Second && s.get("/has-resty") == "true" {
			paths = append(paths, "/resty")
		}
		path := paths[i]
		half := time.AfterFunc(length/2, s.reload)
		began := time.Now()
		s.flood(fmt.Sprintf("%s?rate=%d&burst=%d", path, rate, burst), length)
		took := time.Since(began)
		half.Stop()
		s.stop()
		all := s.decisions()
		if len(all) == 0 {
			t.Fatalf("%s: nothing was decided", path)
		}
		if path == "/resty" {
			admitted := 0
			for _, d := range all {
				if d.allowed {
					admitted++
				}
			}
			bound := float64(rate)*took.Seconds() + float64(burst) + 1
			t.Logf("%-6s %8d admitted, bound %8.0f, %6.3f of it; %.0f requests per s", path, admitted, bound,
				float64(admitted)/bound, float64(len(all))/took.Seconds())
			continue
		}
		j := judge(all, float64(rate), burst)
		t.Logf(
			"%-6s %8d admitted, bound %8.0f, %6.3f of it, %5.3f of what the requests left room for; %.0f requests per s, "+
				"fullest interval %.3f, %d workers",
			path,
			j.admitted,
			j.bound,
			float64(j.admitted)/j.bound,
			float64(j.admitted)/(j.bound-float64(rate)*j.silent),
			float64(j.requests)/j.seconds,
			j.fullest,
			j.workers,
		)
		if float64(j.admitted) > j.bound || j.fullest > 1+1e-9 {
			t.Errorf("%s: %d admitted, more than the bound of %.0f (fullest interval %.6f)", path, j.admitted, j.bound,
				j.fullest)
		}
		// Without a burst, the rate is not used while no request arrives.
		if left := j.bound - float64(rate)*j.silent; length >= 5*time.Second && float64(j.requests) > 2*j.bound &&
			float64(j.admitted) < 0.98*left {
			t.Errorf("%s: %d admitted, less than 0.98 of the %.0f that the requests left room for", path, j.admitted, left)
		}
		if err := asModelled(all, rate, burst); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
