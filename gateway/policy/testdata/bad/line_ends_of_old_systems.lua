return { -- rules rules = {} }
-- want 1: a carriage return without a line feed: end lines as on Unix or Windows
