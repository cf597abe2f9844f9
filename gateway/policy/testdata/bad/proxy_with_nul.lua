return {
  trusted_proxies = { "10.0.0.1\000x" },
  rules = {},
}
-- want 2: a backslash in a string: write the character itself
