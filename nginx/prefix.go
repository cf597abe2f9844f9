package nginx

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"sluice/lua"
)

//go:embed nginx.conf check.conf conf.d snippets
var files embed.FS

// marker identifies a directory as the prefix of an edge, which may be emptied. It is also the lock of the running
// edge.
const marker = ".sluice-edge"

// shared lists the entries of nginx/ that do not differ between machines; runtime/ is written for each prefix.
var shared = []string{"nginx.conf", "check.conf", "conf.d", "snippets"}

// prefix is the directory in which nginx runs: nginx/ and lua/ (links into Root, or copies of the embedded files),
// nginx/runtime/, logs/, tmp/.
type prefix struct {
	dir  string
	root string // "" for embedded files
	lock *os.File

	pages string     // directory of the page cache and of temporary files; "": in dir
	held  []*os.File // dir and pages, see hold
}

// openPrefix creates the directory dir or takes it over. It fails when another edge runs there.
func openPrefix(dir, root string) (*prefix, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrConfig, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrConfig, err)
	}
	path := filepath.Join(dir, marker)
	if _, err := os.Stat(path); len(entries) > 0 && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf(
			"%w: the directory %s is not empty and not of an edge: use an empty one", ErrConfig, dir)
	}
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrConfig, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("%w: another edge runs in %s: stop it, or use another --prefix", ErrConfig, dir)
	}
	p := &prefix{dir: dir, root: root, lock: lock}
	p.hold(dir)
	return p, nil
}

// close removes the page cache and releases the locks.
func (p *prefix) close() {
	p.removePages()
	for _, dir := range p.held {
		dir.Close()
	}
	p.lock.Close()
}

// hold takes a shared lock on a directory, which close releases. systemd-tmpfiles removes old files from temporary
// directories, but not from a locked one, see tmpfiles.d(5).
func (p *prefix) hold(path string) {
	if dir, err := os.Open(path); err == nil {
		_ = syscall.Flock(int(dir.Fd()), syscall.LOCK_SH)
		p.held = append(p.held, dir)
	}
}

// pagesLink is a link to prefix.pages.
const pagesLink = ".pages"

// keepPages creates the directory of the page cache and of temporary files. Workers of a root master run as another
// user, which often cannot enter dir. It removes the directory of a killed edge.
func (p *prefix) keepPages() error {
	if os.Geteuid() != 0 || p.pages != "" {
		return nil
	}
	p.removePages()
	var err error
	if p.pages, err = os.MkdirTemp("", temporaryName); err != nil {
		return err
	}
	p.hold(p.pages)
	if err := os.Chmod(p.pages, 0o711); err != nil { //nolint:gosec // workers must be able to enter it
		return err
	}
	return os.Symlink(p.pages, filepath.Join(p.dir, pagesLink))
}

// removePages removes the directory that the link names.
func (p *prefix) removePages() {
	link := filepath.Join(p.dir, pagesLink)
	dir, err := os.Readlink(link)
	if err != nil {
		return
	}
	if made, err := filepath.Match(filepath.Join(os.TempDir(), temporaryName+"*"), dir); err == nil && made {
		_ = os.RemoveAll(dir)
	}
	_ = os.Remove(link)
}

// fill writes everything that nginx needs.
func (p *prefix) fill(c Config, bin binary) error {
	for _, name := range []string{"nginx", "lua"} {
		if err := os.RemoveAll(filepath.Join(p.dir, name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"nginx/runtime", "logs", "tmp"} {
		if err := os.MkdirAll(filepath.Join(p.dir, name), 0o755); err != nil {
			return err
		}
	}
	if err := p.keepPages(); err != nil {
		return err
	}
	lay := p.extract
	if p.root != "" {
		lay = p.link
	}
	if err := lay(); err != nil {
		return err
	}
	for name, text := range runtimeFiles(c, bin, p.pages) {
		mode := fs.FileMode(0o644)
		if name == spansConf {
			mode = 0o600
		}
		if err := os.WriteFile(filepath.Join(p.dir, "nginx/runtime", name), []byte(text), mode); err != nil {
			return err
		}
	}
	return nil
}

func (p *prefix) link() error {
	for _, name := range shared {
		target := filepath.Join(p.root, "nginx", name)
		if _, err := os.Stat(target); err != nil {
			return fmt.Errorf("%w: %s is not a directory with nginx/ and lua/: %v", ErrConfig, p.root, err)
		}
		if err := os.Symlink(target, filepath.Join(p.dir, "nginx", name)); err != nil {
			return err
		}
	}
	return os.Symlink(filepath.Join(p.root, "lua"), filepath.Join(p.dir, "lua"))
}

func (p *prefix) extract() error {
	if err := os.CopyFS(filepath.Join(p.dir, "nginx"), files); err != nil {
		return err
	}
	return os.CopyFS(filepath.Join(p.dir, "lua"), lua.Edge)
}

// source returns text in which paths of this prefix are replaced by those of the files behind them.
func (p *prefix) source(text string) string {
	for _, name := range []string{"nginx/", "lua/"} {
		target := name
		if p.root != "" {
			target = filepath.Join(p.root, name) + "/"
		}
		for _, dir := range []string{p.dir + "/", p.dir + "//"} { // nginx keeps the slash at the end of its prefix
			text = strings.ReplaceAll(text, dir+name, target)
			for cut := range len(dir) { // Lua shortens long names of files
				text = strings.ReplaceAll(text, "..."+dir[cut:]+name, target)
			}
		}
	}
	return text
}

// hasKeys reports whether the edge in this prefix was started with a key file.
func (p *prefix) hasKeys() bool {
	main, err := os.ReadFile(filepath.Join(p.dir, "nginx/runtime/main.conf"))
	_, found := variableOf(string(main), keysVariable)
	return err == nil && found
}

// runtimeFiles returns the texts of the files of nginx/runtime by name. Relative paths in them are relative to the
// prefix. pages is prefix.pages.
func runtimeFiles(c Config, bin binary, pages string) map[string]string {
	texts := map[string]string{"main.conf": mainConf(c), "http.conf": httpConf(c, pages), "listen.conf": listener(c, bin)}
	if len(c.CORSOrigins) > 0 {
		var cors strings.Builder
		for _, o := range c.CORSOrigins {
			fmt.Fprintf(&cors, "\"%s\" $sluice_cors_echo;\n", o)
		}
		texts["cors.map"] = cors.String()
	}
	if c.Spans != nil {
		texts["traceparent.map"], texts[spansConf] = traceParent, c.Spans.conf()
	}
	if c.Status != "" {
		texts["status.conf"] = "server {\n    listen " + c.Status + ";\n    include snippets/status.conf;\n}\n"
	}
	return texts
}

// Environment variables of workers. RunningPolicy and hasKeys read their values from runtime/main.conf. No name may
// begin with another: os.getenv of ngx_lua confuses them.
const (
	policyVariable = "SLUICE_POLICY"
	leaseVariable  = "SLUICE_LEASE_SOCKET"
	keysVariable   = "SLUICE_TOKEN_KEYS"
)

// mainConf returns runtime/main.conf.
func mainConf(c Config) string {
	workers := "auto"
	if c.Workers > 0 {
		workers = strconv.Itoa(c.Workers)
	}
	var main strings.Builder
	fmt.Fprintf(&main, "worker_processes %s;\npid %s;\nerror_log stderr notice;\n", workers, pidFile)
	fmt.Fprintf(&main, "env SLUICE_TOKEN_SECRET;\nenv %s;\n", plainVariable)
	spans := ""
	if c.Spans != nil {
		spans = c.Spans.Metrics
	}
	for _, v := range []struct{ name, value string }{
		{policyVariable, c.Policy}, {keysVariable, c.TokenKeys}, {"SLUICE_TOKEN_ISSUER", c.Issuer},
		{"SLUICE_TOKEN_AUDIENCE", c.Audience}, {"SLUICE_KEYS_SOCKET", c.KeysSocket}, {leaseVariable, c.LeaseSocket},
		{"SLUICE_VERSION", c.Version}, {"SLUICE_SPANS_METRICS", spans},
	} {
		if v.value != "" {
			fmt.Fprintf(&main, "env \"%s=%s\";\n", v.name, v.value)
		}
	}
	return main.String()
}

// variableOf returns the value of a variable of a main.conf.
func variableOf(main, name string) (value string, found bool) {
	_, rest, found := strings.Cut(main, `env "`+name+"=")
	value, _, _ = strings.Cut(rest, `";`)
	return value, found
}

// pagesCache keeps pages and their scripts: 8,000 names, 64 MB.
const pagesCache = "proxy_cache_path \"%s\" keys_zone=sluice_pages:1m max_size=64m inactive=10m use_temp_path=off;\n"

const accessLog = "access_log logs/access.log sluice buffer=64k flush=1s;\n"

// httpConf returns runtime/http.conf.
func httpConf(c Config, pages string) string {
	var http strings.Builder
	http.WriteString("upstream sluice_backend {\n")
	for _, upstream := range c.Upstreams {
		fmt.Fprintf(&http, "    server %s max_fails=2 fail_timeout=1s;\n", upstream)
	}
	http.WriteString("    keepalive 128;\n    keepalive_requests 100000;\n    keepalive_timeout 30s;\n}\n")
	fmt.Fprintf(&http, "limit_conn sluice_clients %d;\n", c.PerClient)
	http.WriteString(accessLog)
	if c.Spans != nil {
		http.WriteString("include runtime/" + spansConf + ";\n")
	}
	pages = cmp.Or(pages, "tmp")
	for _, name := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&http, "%s_temp_path \"%s/%s\";\n", name, pages, name)
	}
	fmt.Fprintf(&http, pagesCache, pages+"/pages")
	return http.String()
}

// listener returns runtime/listen.conf.
func listener(c Config, bin binary) string {
	options := " backlog=4096"
	if c.ProxyProtocol {
		options += " proxy_protocol"
	}
	if c.TLSCert == "" {
		return "listen " + c.Listen + options + ";\n"
	}
	speak := " ssl http2;\n"
	if bin.http2 {
		speak = " ssl;\nhttp2 on;\n"
	}
	return fmt.Sprintf("listen %s%s%sssl_certificate \"%s\";\nssl_certificate_key \"%s\";\ninclude snippets/tls.conf;\n",
		c.Listen, options, speak, c.TLSCert, c.TLSKey)
}
