package main

import (
	"context"
	"fmt"
	"strings"
)

// luaModules are the modules of sluice.limit.req; docs/edge-bound.md lists them, and a test of package nginx compares
// the lists.
var luaModules = []string{
	"sluice.clock", "sluice.limit.fraction", "sluice.limit.gcra", "sluice.limit.lock", "sluice.limit.req",
	"sluice.limit.zone",
}

const (
	luaName    = "lua-sluice-limit"
	luaSummary = "Exact rate limits for ngx_lua, with the interface of resty.limit.req"
)

// luaPackages builds the rock and the opm package.
func (r Release) luaPackages(context.Context) error {
	modules := archive{}
	for _, module := range luaModules {
		path := strings.ReplaceAll(module, ".", "/") + ".lua"
		text, err := r.read("lua/edge/" + path)
		if err != nil {
			return err
		}
		modules[path] = text
	}
	license, err := r.read("LICENSE")
	if err != nil {
		return err
	}
	readme, err := r.read("packaging/lua/README.md")
	if err != nil {
		return err
	}
	if err := r.rock(modules, license, readme); err != nil {
		return err
	}
	return r.opm(modules, license, readme)
}

// rockVersion returns a version for LuaRocks, in which a hyphen separates the revision of the rockspec.
func rockVersion(version string) string { return strings.Replace(version, "-", "", 1) + "-1" }

// rock builds a source rock: a zip with the rockspec and the archive that it names.
func (r Release) rock(modules archive, license, readme []byte) error {
	version := rockVersion(r.Version)
	dir := luaName + "-" + r.Version
	source := archive{dir + "/LICENSE": license, dir + "/README.md": readme}
	var list strings.Builder
	for _, module := range luaModules {
		path := strings.ReplaceAll(module, ".", "/") + ".lua"
		source[dir+"/lib/"+path] = modules[path]
		fmt.Fprintf(&list, "      [%q] = %q,\n", module, "lib/"+path)
	}
	packed, err := source.tarGz(r.Time)
	if err != nil {
		return err
	}
	spec := fmt.Sprintf(`rockspec_format = "3.0"
package = %q
version = %q
source = {
   url = %q,
   dir = %q,
}
description = {
   summary = %q,
   license = "Apache-2.0",
}
supported_platforms = { "linux" }
dependencies = { "lua ~> 5.1" }
build = {
   type = "builtin",
   modules = {
%s   },
}
`, luaName, version, dir+".tar.gz", dir, luaSummary, list.String())
	name := luaName + "-" + version
	rock, err := archive{name + ".rockspec": []byte(spec), dir + ".tar.gz": packed}.zip(r.Time)
	if err != nil {
		return err
	}
	return r.write(name+".src.rock", rock)
}

// opm builds the package that the opm server builds from an upload: opm installs a package only with pod/ and
// resty.index.
func (r Release) opm(modules archive, license, readme []byte) error {
	dir := luaName + "-" + r.Version + ".opm"
	ini := fmt.Sprintf(`name = %s
abstract = %s
version = %s
author = The sluice authors
is_original = yes
license = apache2
repo_link = https://github.com/sluice/%s
lib_dir = lib
main_module = lib/sluice/limit/req.lua
requires = luajit
`, luaName, luaSummary, r.Version, luaName)
	all := archive{dir + "/dist.ini": []byte(ini), dir + "/LICENSE": license, dir + "/README.md": readme}
	for path, text := range modules {
		all[dir+"/lib/"+path] = text
	}
	pod := "sluice/limit/req.pod"
	all[dir+"/pod/"+pod] = fmt.Appendf(nil, "=head1 NAME\n\nsluice.limit.req - %s\n\n=head1 SYNOPSIS\n\n"+
		"    local limit = require(\"sluice.limit.req\").new(\"limits\", 200, 100)\n"+
		"    local delay, err = limit:incoming(ngx.var.binary_remote_addr, true)\n\n=cut\n", luaSummary)
	all[dir+"/resty.index"] = []byte("module sluice.limit.req\n" + pod + "\n")
	return r.writeTarGz(dir+".tar.gz", all)
}
