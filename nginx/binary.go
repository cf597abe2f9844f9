package nginx

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// binary is an nginx that can run Lua.
type binary struct {
	path    string
	modules []string // dynamic modules to load, in this order
	http2   bool     // `http2 on` is a directive (since nginx 1.25.1), and not a parameter of listen
}

// places lists names in PATH, and binaries of OpenResty's packages and of Debian.
var places = []string{
	"openresty",
	"nginx",
	"/usr/local/openresty/bin/openresty",
	"/usr/local/openresty/nginx/sbin/nginx",
	"/usr/sbin/nginx",
	"/usr/local/sbin/nginx",
}

// modulePlaces lists module directories of distributions, in addition to that of `nginx -V`.
var modulePlaces = []string{"/usr/lib/nginx/modules", "/usr/lib64/nginx/modules", "/usr/share/nginx/modules"}

// findBinary looks for OpenResty first, which has everything built in, then for nginx with Debian's modules.
func findBinary(ctx context.Context, given string) (binary, error) {
	path := given
	if path == "" {
		if path = firstExecutable(); path == "" {
			return binary{}, fmt.Errorf(
				"%w: neither openresty nor nginx is installed: apt-get install nginx-light libnginx-mod-http-lua", ErrConfig)
		}
	}
	out, err := exec.CommandContext(ctx, path, "-V").CombinedOutput()
	if ctx.Err() != nil {
		return binary{}, ctx.Err()
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return binary{}, fmt.Errorf("%w: --nginx %s: %w", ErrConfig, path, at.Err)
	}
	if err != nil {
		return binary{}, fmt.Errorf("%w: %s -V: %v", ErrConfig, path, err)
	}
	build := string(out)
	if !nginxBuild.MatchString(build) {
		return binary{}, fmt.Errorf("%w: %s is not nginx: -V prints no version and no configure arguments", ErrConfig, path)
	}
	http2 := hasHTTP2Directive(build)
	if builtInLua.MatchString(build) {
		return binary{path: path, http2: http2}, nil
	}
	dirs := modulePlaces
	if m := modulesPath.FindStringSubmatch(build); m != nil {
		dirs = append([]string{m[1]}, dirs...)
	}
	for _, dir := range dirs {
		ndk, lua := filepath.Join(dir, "ndk_http_module.so"), filepath.Join(dir, "ngx_http_lua_module.so")
		if isFile(lua) && isFile(ndk) {
			return binary{path: path, modules: []string{ndk, lua}, http2: http2}, nil
		}
	}
	return binary{}, fmt.Errorf(
		"%w: %s has no Lua module: apt-get install libnginx-mod-http-lua, or use OpenResty", ErrConfig, path)
}

var (
	// nginxBuild matches the output of `nginx -V`. OpenResty and forks of nginx print these lines, with other names.
	nginxBuild  = regexp.MustCompile(`(?ms)^\w+ version: .*^configure arguments:`)
	builtInLua  = regexp.MustCompile(`--add-module=\S*(ngx_lua|lua-nginx-module)`)
	modulesPath = regexp.MustCompile(`--modules-path=(\S+)`)
	release     = regexp.MustCompile(`(?m)^nginx version: (?:.*?nginx|openresty)/(\d+)\.(\d+)\.(\d+)`)
)

// hasHTTP2Directive reports whether `http2 on` is a directive, from the output of `nginx -V`. A build without a release
// counts as an old one: the parameter works in all releases.
func hasHTTP2Directive(build string) bool {
	m := release.FindStringSubmatch(build)
	if m == nil {
		return false
	}
	var version [3]int
	for i := range version {
		version[i], _ = strconv.Atoi(m[i+1]) // digits
	}
	return slices.Compare(version[:], []int{1, 25, 1}) >= 0
}

func firstExecutable() string {
	for _, place := range places {
		if path, err := exec.LookPath(place); err == nil {
			return path
		}
	}
	return ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// args returns the arguments that run configuration file conf of the prefix dir; more are directives.
func (b binary) args(dir, conf string, more ...string) []string {
	directives := more
	for _, module := range b.modules {
		directives = append(directives, "load_module "+module)
	}
	args := []string{"-p", dir + "/", "-c", "nginx/" + conf}
	if len(directives) > 0 {
		args = append(args, "-g", strings.Join(directives, "; ")+";")
	}
	return args
}
