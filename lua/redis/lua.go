// Package redisscript embeds the scripts that run inside Redis, one file a script. Each file's header says its purpose,
// KEYS, ARGV and answers. Scripts read and decide first and write last, because Redis does not roll a script back.
package redisscript

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var files embed.FS

// Load returns the script in name.lua, ready to Run (EVALSHA, and EVAL when Redis does not know it yet). It panics when
// there is no such file: names are constants, and a test loads them all.
func Load(name string) *redis.Script {
	src, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err)
	}
	return redis.NewScript(string(src))
}
