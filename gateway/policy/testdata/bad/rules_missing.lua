return {}
-- want 1: rules is missing: write rules = {} to limit nothing
