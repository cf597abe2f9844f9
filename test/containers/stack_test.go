package containers

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"

	"sluice/test/testenv"
)

// stack is a clone of this repository with an .env, started by docker compose.
type stack struct {
	*testing.T
	engine      engine
	dir         string
	descriptors uint64 // that the edge may have
}

// clone copies the files that git tracks and fills in the secrets of .env.example, as a reader of the README would.
func clone(t *testing.T, e engine) *stack {
	t.Helper()
	s := &stack{T: t, engine: e, dir: t.TempDir()}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(
		run(t, "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00",
	) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if name == "" || err != nil { // removed, and not committed yet
			continue
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(s.dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(s.dir, name), string(text))
	}
	env := read(t, filepath.Join(s.dir, ".env.example"))
	for _, secret := range []string{"SLUICE_TOKEN_SECRET", "SLUICE_ADMIN_TOKEN", "POSTGRES_PASSWORD"} {
		env = strings.Replace(env, secret+"=\n", secret+"="+strings.Repeat(strings.ToLower(secret[:4]), 8)+"\n", 1)
	}
	write(t, filepath.Join(s.dir, ".env"), env)

	// Docker's own service has no limit of descriptors; the account that runs the test may have one that even root
	// cannot raise.
	s.descriptors = 32768
	var bound syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &bound); err != nil {
		t.Fatal(err)
	}
	if bound.Max < s.descriptors {
		s.descriptors = bound.Max
		t.Logf("the edge gets %d descriptors, the limit of this machine", bound.Max)
		write(t, filepath.Join(s.dir, "docker-compose.override.yml"),
			fmt.Sprintf("services: { edge: { ulimits: { nofile: %d } } }\n", bound.Max))
	}
	return s
}

// docker runs docker compose and returns its output, which watcher receives while it runs.
func (s *stack) docker(watcher io.Writer, args ...string) (string, error) {
	cmd := exec.Command(os.Getenv(composeVariable), args...) // it takes the stack down when the test's context has ended
	cmd.Dir = s.dir
	// Without the caller's environment: no settings, no variables that override .env.
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + s.dir,
		"DOCKER_CONFIG=" + filepath.Join(s.dir, ".docker"),
		"DOCKER_HOST=" + s.engine.host,
		"COMPOSE_ANSI=never",
		"COMPOSE_PROGRESS=plain",
	}
	var out strings.Builder
	all := io.MultiWriter(&out, watcher)
	cmd.Stdout, cmd.Stderr = all, all
	err := cmd.Run()
	return out.String(), err
}

// try runs docker compose and returns its output.
func (s *stack) try(args ...string) (string, error) { return s.docker(io.Discard, args...) }

// compose runs docker compose, which must succeed.
func (s *stack) compose(args ...string) {
	s.Helper()
	var watcher io.Writer = io.Discard
	if testing.Verbose() {
		watcher = os.Stderr
	}
	started := time.Now()
	out, err := s.docker(watcher, args...)
	if err != nil {
		s.Fatalf("docker compose %s: %v\n%s", strings.Join(args, " "), err, tail(out, 60))
	}
	s.Logf("%6.1f s  docker compose %s", time.Since(started).Seconds(), strings.Join(args, " "))
}

// in runs a command in a service's container, and returns its output and whether it succeeded.
func (s *stack) in(service string, command ...string) (string, error) {
	out, err := s.try(append([]string{"exec", "-T", service}, command...)...)
	return strings.TrimSpace(out), err
}

// sluice runs the command as the head of docker-compose.yml describes.
func (s *stack) sluice(args ...string) string {
	s.Helper()
	out, err := s.in("backend-1", append([]string{"sluice"}, args...)...)
	if err != nil {
		s.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// containers returns the containers of a service, or all for "".
func (s *stack) containers(ctx context.Context, service string) []container.InspectResponse {
	s.Helper()
	label := "com.docker.compose.project=sluice"
	if service != "" {
		label = "com.docker.compose.service=" + service
	}
	list, err := s.engine.ContainerList(ctx,
		container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label))})
	if err != nil {
		s.Fatal(err)
	}
	var all []container.InspectResponse
	for _, one := range list {
		c, err := s.engine.ContainerInspect(ctx, one.ID)
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// crash kills the first process of a service's first container from outside, which the engine sees as a crash, and
// waits until the service is healthy again.
func (s *stack) crash(service string) {
	s.Helper()
	c := s.containers(s.Context(), service)[0]
	if err := syscall.Kill(c.State.Pid, syscall.SIGKILL); err != nil {
		s.Fatalf("%s: %v", service, err)
	}
	started := time.Now()
	testenv.Eventually(s, 2*time.Minute, service+" is restarted and healthy", func() bool {
		now, err := s.engine.ContainerInspect(s.Context(), c.ID)
		return err == nil && now.RestartCount > c.RestartCount && now.State.Health != nil &&
			now.State.Health.Status == container.Healthy
	})
	s.Logf("%6.1f s  until %s was back", time.Since(started).Seconds(), service)
}

// address returns the address of a service's container in a network.
func (s *stack) address(service, network string) string {
	s.Helper()
	end := s.containers(s.Context(), service)[0].NetworkSettings.Networks["sluice_"+network]
	if end == nil {
		s.Fatalf("%s is not in the network %s", service, network)
	}
	return end.IPAddress
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	if cut := len(all) - lines; cut > 0 {
		all = append([]string{fmt.Sprintf("(%d lines before)", cut)}, all[cut:]...)
	}
	return strings.Join(all, "\n")
}

// kept returns the names of the existing volumes and networks of this stack.
func (s *stack) kept() (volumes, networks []string) {
	s.Helper()
	mine := filters.NewArgs(filters.Arg("label", "com.docker.compose.project=sluice"))
	v, err := s.engine.VolumeList(s.Context(), volume.ListOptions{Filters: mine})
	if err != nil {
		s.Fatal(err)
	}
	for _, one := range v.Volumes {
		volumes = append(volumes, one.Name)
	}
	n, err := s.engine.NetworkList(s.Context(), network.ListOptions{Filters: mine})
	if err != nil {
		s.Fatal(err)
	}
	for _, one := range n {
		networks = append(networks, one.Name)
	}
	return volumes, networks
}
