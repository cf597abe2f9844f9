return { rules = "none" }
-- want 1: rules must be a list, and is the string "none"
