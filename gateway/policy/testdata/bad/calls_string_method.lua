local s = ("x"):rep(1e9)
return { rules = {} }
-- want 1: attempt to index a non-table object(string) with key 'rep': a policy has no libraries, and can call only what it defines itself
