return { rules = {} }, true
-- want 1: unexpected ",": a policy ends with the value that it returns
