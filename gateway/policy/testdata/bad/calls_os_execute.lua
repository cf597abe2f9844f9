local home = os.execute("true")
return { rules = {} }
-- want 1: attempt to index a non-table object(nil) with key 'execute': a policy has no libraries, and can call only what it defines itself
