local t = {}
return { rules = t }
-- want 2: a control character: it may be in comments only
