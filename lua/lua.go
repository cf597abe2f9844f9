// Package lua embeds the edge policy and the Lua modules of the nginx edge, so that one binary can run without this
// repository beside it. The scripts that run inside Redis are embedded by lua/redis.
package lua

import "embed"

// Policy is policy.lua, the policy that is used when no other is given.
//
//go:embed policy.lua
var Policy []byte

// Edge holds policy.lua and edge/, laid out as here.
//
//go:embed policy.lua edge
var Edge embed.FS
