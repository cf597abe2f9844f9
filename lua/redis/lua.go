// Package redisscript embeds the scripts that run inside Redis, one file per script. The header of each file states its
// purpose, KEYS, ARGV and return values. Scripts read and check first and write last, because Redis does not roll back.
// Files in include hold shared functions; the line "-- include NAME" is replaced by the file.
package redisscript

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua include/*.lua
var files embed.FS

var include = regexp.MustCompile(`(?m)^-- include (\w+)$`)

// Load returns the script name.lua. Its Run sends EVALSHA, and EVAL if Redis does not have the script. Load panics if
// the file does not exist; names are constants. It is safe for concurrent use.
func Load(name string) *redis.Script {
	if s, ok := loaded.Load(name); ok {
		return s.(*redis.Script)
	}
	s := redis.NewScript(Source(name))
	loaded.Store(name, s)
	return s
}

// Run runs the script name.lua; see Load.
func Run(ctx context.Context, client redis.Scripter, name string, keys []string, args ...any) *redis.Cmd {
	return Load(name).Run(ctx, client, keys, args...)
}

var loaded sync.Map // *redis.Script by name

// Names returns the names of all scripts.
func Names() []string {
	names, err := fs.Glob(files, "*.lua")
	if err != nil {
		panic(fmt.Sprintf("redisscript: %v", err)) // the pattern is well formed
	}
	for i, name := range names {
		names[i] = strings.TrimSuffix(name, ".lua")
	}
	return names
}

// Source returns the text of name.lua with its includes. It panics if a file does not exist.
func Source(name string) string {
	return include.ReplaceAllStringFunc(read(name+".lua"), func(line string) string {
		return read("include/" + include.FindStringSubmatch(line)[1] + ".lua")
	})
}

func read(file string) string {
	src, err := files.ReadFile(file)
	if err != nil {
		panic(fmt.Sprintf("redisscript: %v", err))
	}
	return string(src)
}
