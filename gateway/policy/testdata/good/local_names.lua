local local_ = { "10.0.0.0/8" };
local _ = "ip" local ending = true
local strict = { name = "strict", key = _, rate = "1r/s", delay = ending, burst = 4 }
local strict = { name = "stricter", key = _, rate = "1r/s", delay = ending, burst = 4 }
local rules = { strict, { name = "buy", key = _, rate = "2r/s", match = { method = "POST" }, }; }
return { trusted_proxies = local_, rules = rules };
