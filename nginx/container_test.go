package nginx

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/test/testenv"
)

// nginx runs with the files of this directory and of lua/, as in a container. Only paths, and names that exist only
// there, are replaced.
func TestTheFilesRunAsTheyAreInAContainer(t *testing.T) {
	bin := requireBinary(t)
	backend := echo(t)
	dir, scratch := t.TempDir(), t.TempDir()
	if err := os.Chmod(filepath.Dir(scratch), 0o755); err != nil { // as /tmp is: workers may run as another user
		t.Fatal(err)
	}
	if err := os.CopyFS(dir+"/nginx", os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	lua, err := filepath.Abs("../lua")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(lua, dir+"/lua"); err != nil {
		t.Fatal(err)
	}
	port, status := testenv.FreePort(t), testenv.FreePort(t)
	rewrite(t, dir+"/nginx/runtime/listen.conf", "8080", fmt.Sprint(port))
	rewrite(t, dir+"/nginx/runtime/status.conf", "9145", fmt.Sprint(status))
	rewrite(t, dir+"/nginx/runtime/http.conf", "backend-1:8080", backend.addr)
	rewrite(t, dir+"/nginx/runtime/http.conf", "backend-2:8080", backend.addr)
	rewrite(t, dir+"/nginx/runtime/http.conf", "/tmp/", scratch+"/")
	rewrite(t, dir+"/nginx/runtime/http.conf", "/dev/stdout", scratch+"/access.log")
	rewrite(t, dir+"/nginx/runtime/main.conf", "/tmp/", scratch+"/")
	log := &testenv.Buffer{}
	cmd := exec.Command(bin.path, bin.args(dir, "nginx.conf", "daemon off")...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = environment(secret), log, log, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	ended := make(chan error, 1)
	if err := startBound(cmd, ended); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		<-ended
		if strings.Contains(log.String(), "[emerg]") || strings.Contains(log.String(), "[error]") || t.Failed() {
			t.Errorf("the log of nginx:\n%s", log)
		}
	}()
	testenv.Eventually(t, time.Minute, "a request passes", func() bool {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err == nil {
			response.Body.Close()
		}
		return err == nil && response.StatusCode == 200 && response.Header.Get("RateLimit-Policy") == `"ip";q=41;w=3`
	})
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", status))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 200 {
		t.Errorf("metrics: %d", response.StatusCode)
	}
}
