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
  ignore = { "211/guard", "211/deployment" },
  read_globals = {
    "redis", "KEYS", "ARGV", "cjson", "cmsgpack", "struct", "bit",
    "now_ms", "push_front", "requeue", "assign_slot", "release_slot", "slot_of", "order_of", "notify", "write_sale", "first_serial",
    "group", "entry_text", "leased_entries", "listed_messages", "batch_messages", "end_batch", "lease_entries", "index_line", "letter_key", "encode_letter",
    "find_letter", "check_letter_types", "put_letter", "drop_letter", -- from "-- include" lines
  },
}
-- Locals of an include are used by the scripts that include it; check_shard, check_fence and check_owner use their locals.
files["lua/redis/include"] = { ignore = { "211", "431" }, read_globals = { "guard", "deployment" } }
