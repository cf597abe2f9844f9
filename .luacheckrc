-- luacheck .  (Debian: apt-get install lua-check)

std = "lua51"
max_line_length = 150

-- The policy is data.
files["lua/policy.lua"] = { std = "none" }

-- The edge runs in OpenResty's LuaJIT.
files["lua/edge"] = { std = "ngx_lua" }
files["nginx/testdata"] = { std = "ngx_lua" }

-- Scripts that run inside Redis.
files["lua/redis"] = {
  read_globals = {
    "redis", "KEYS", "ARGV", "cjson", "cmsgpack", "struct", "bit",
    "group", "text_of", "pending", "held", "drop", "deliver", "line_of", "put_letter", "drop_letter", -- what "-- include" brings
  },
}
files["lua/redis/include"] = { ignore = { "211", "431" } } -- what is local here is used by those who include it
