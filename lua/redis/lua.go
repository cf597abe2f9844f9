// Package redisscript embeds the scripts that run inside Redis, one file a script. Each file's header says its purpose,
// KEYS, ARGV and answers. Scripts read and decide first and write last, because Redis does not roll a script back.
// What several of them need is in the folder include; the line "-- include NAME" stands for it.
package redisscript

import (
	"embed"
	"fmt"
	"regexp"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua include/*.lua
var files embed.FS

var include = regexp.MustCompile(`(?m)^-- include (\w+)$`)

// Load returns the script in name.lua, ready to Run (EVALSHA, and EVAL when Redis does not know it yet). It panics when
// there is no such file: names are constants, and a test loads them all. A script is read once.
func Load(name string) *redis.Script {
	if s, ok := loaded.Load(name); ok {
		return s.(*redis.Script)
	}
	s := redis.NewScript(Source(name))
	loaded.Store(name, s)
	return s
}

var loaded sync.Map // by name; a script never changes

// Source is the text of name.lua with what it includes. It panics as Load does.
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
