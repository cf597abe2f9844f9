package containers

import (
	"archive/tar"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/image"

	"sluice/test/testenv"
)

//go:embed standin/*.sh images_test.go files_test.go
var recipes embed.FS

// images are those that docker-compose.yml and the Dockerfile name, built from programs of this machine. The
// properties that the files rely on are as in the published images: user ids, directories with their owners, entry
// points, signals and volumes.
var images = []struct {
	name   string
	fill   func(f *files)
	recipe string // lines of a Dockerfile
}{
	{"alpine:3.22", func(*files) {}, `CMD ["/bin/sh"]`},

	// A build reaches no network but that of the engine, and the sums of modules are in go.sum.
	{"golang:1.26-alpine", func(f *files) {
		root := strings.TrimSpace(run(f.t, "go", "env", "GOROOT"))
		for _, part := range []string{"bin", "lib", "pkg", "src"} {
			f.tree("/usr/local/go/"+part, filepath.Join(root, part))
		}
		for _, part := range []string{"VERSION", "go.env"} {
			f.copy("/usr/local/go/"+part, filepath.Join(root, part))
		}
		f.program("install", "coreutils") // part of busybox on Alpine, but not on Debian
	}, "ENV PATH=/usr/local/go/bin:" + path + " GOPATH=/go GOTOOLCHAIN=local GOPROXY=" + modules + " GOSUMDB=off"},

	{"redis:7.2-alpine", func(f *files) {
		f.program("redis-server", "redis-server")
		f.program("redis-cli", "redis-tools")
		f.directory("/data", 999, 1000, 0o755)
	}, "VOLUME /data\nWORKDIR /data"},

	{"postgres:17-alpine", postgres, `
ENV PATH=/usr/lib/postgresql/bin:` + path + ` PGDATA=/var/lib/postgresql/data LANG=C.UTF-8
VOLUME /var/lib/postgresql/data
STOPSIGNAL SIGINT
ENTRYPOINT ["/usr/local/bin/postgres.sh"]
CMD ["postgres"]`},

	{"openresty/openresty:1.27.1.2-0-alpine", openresty, "STOPSIGNAL SIGQUIT"},

	{"prom/prometheus:v3.5.0", func(f *files) {
		f.copy("/bin/prometheus", testenv.Find(f.t, "prometheus", "prometheus"))
		f.directory("/prometheus", 65534, 65534, 0o755)
	}, `
USER nobody
VOLUME /prometheus
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]`},
}

const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Debian has a directory for each version of PostgreSQL; the newest is used. It needs only the C locale of the machine.
func postgres(f *files) {
	initdb, err := filepath.EvalSymlinks(testenv.Find(f.t, "initdb", "postgresql", "/usr/lib/postgresql/*/bin/initdb"))
	if err != nil {
		f.t.Fatal(err)
	}
	bin := filepath.Dir(initdb)
	for _, program := range []string{"postgres", "initdb", "pg_ctl", "psql", "pg_isready"} {
		f.copy(filepath.Join(bin, program), filepath.Join(bin, program))
	}
	f.link("/usr/lib/postgresql/bin", bin)
	lib, share := filepath.Join(bin, "../lib"), filepath.Join("/usr/share/postgresql", filepath.Base(filepath.Dir(bin)))
	for _, library := range []string{"plpgsql.so", "dict_snowball.so"} {
		f.copy(filepath.Join(lib, library), filepath.Join(lib, library))
	}
	for _, folder := range []string{share, "/usr/lib/locale/C.utf8", "/usr/share/zoneinfo"} {
		f.tree(folder, folder)
	}
	f.copy("/usr/bin/setpriv", testenv.Find(f.t, "setpriv", "util-linux")) // busybox's own lacks the options
	f.script("postgres.sh", "/usr/local/bin/postgres.sh")
}

// OpenResty, if this machine has it; otherwise nginx with ngx_lua.
func openresty(f *files) {
	if program, err := exec.LookPath("openresty"); err == nil {
		if program, err = filepath.EvalSymlinks(program); err != nil {
			f.t.Fatal(err)
		}
		prefix := filepath.Join(program, "../../..") // of PREFIX/nginx/sbin/nginx
		f.tree(prefix, prefix)
		f.link("/usr/local/bin/openresty", program)
		return
	}
	f.program("nginx", "nginx-light")
	for _, module := range []string{"ndk_http_module.so", "ngx_http_lua_module.so"} {
		f.copy("/usr/lib/nginx/modules/"+module, "/usr/lib/nginx/modules/"+module)
	}
	for _, library := range []string{"/usr/share/lua/5.1/resty", "/usr/share/lua/5.1/ngx"} {
		f.tree(library, library)
	}
	f.directory("/var/lib/nginx", 0, 0, 0o755)
	f.directory("/var/log/nginx", 0, 0, 0o755)
	f.script("openresty.sh", "/usr/local/bin/openresty")
}

func (f *files) script(name, as string) {
	text, err := recipes.ReadFile("standin/" + name)
	if err != nil {
		f.t.Fatal(err)
	}
	f.text(as, string(text), 0o755)
}

// base adds the parts of Alpine that all images have: busybox, the users, a directory that all can write.
func (f *files) base() {
	f.program("busybox", "busybox")
	for applet := range strings.FieldsSeq(run(f.t, "busybox", "--list")) {
		f.link("/bin/"+applet, testenv.Find(f.t, "busybox", "busybox"))
	}
	f.text(
		"/etc/passwd",
		"root:x:0:0::/root:/bin/sh\nredis:x:999:1000::/data:/bin/sh\npostgres:x:70:70::/var/lib/postgresql:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
		0o644,
	)
	f.text("/etc/group", "root:x:0:\nredis:x:1000:\npostgres:x:70:\nnobody:x:65534:\n", 0o644)
	f.directory("/tmp", 0, 0, 0o1777)
	f.directory("/run", 0, 0, 0o755)
	f.link("/var/run", "/run")
}

// makeImages builds the images that the engine does not have yet, by these recipes.
func (e engine) makeImages(t *testing.T) {
	t.Helper()
	sum := sha256.New()
	if err := fs.WalkDir(recipes, ".", func(name string, entry fs.DirEntry, err error) error {
		text, _ := recipes.ReadFile(name)
		sum.Write(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	version := hex.EncodeToString(sum.Sum(nil))
	for _, i := range images {
		if there, err := e.ImageInspect(t.Context(), i.name); err == nil && there.Config.Labels["recipes"] == version {
			continue
		}
		content := archive(t, func(f *files) {
			i.fill(f)
			f.base()
		})
		imported, err := e.ImageImport(
			t.Context(),
			image.ImportSource{Source: content, SourceName: "-"},
			"content",
			image.ImportOptions{},
		)
		succeeded(t, i.name, imported, err)
		recipe := archive(t, func(f *files) {
			f.text("Dockerfile", "FROM content\nLABEL recipes="+version+"\nENV PATH="+path+"\n"+i.recipe, 0o644)
		})
		built, err := e.ImageBuild(t.Context(), recipe, build.ImageBuildOptions{Tags: []string{i.name}, Remove: true})
		succeeded(t, i.name, built.Body, err)
	}
}

// archive returns the files that fill adds, as a tar stream.
func archive(t *testing.T, fill func(*files)) io.Reader {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	f := &files{t: t, out: tar.NewWriter(file), written: map[string]bool{}}
	fill(f)
	if err := f.out.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	return file
}

// succeeded reads the engine's output while it builds an image. An error fails the test.
func succeeded(t *testing.T, name string, body io.ReadCloser, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	output, err := io.ReadAll(body)
	body.Close()
	if err != nil || strings.Contains(string(output), `"error"`) {
		t.Fatalf("%s: %v\n%s", name, err, output)
	}
}
