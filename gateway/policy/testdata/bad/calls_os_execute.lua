local home = os.execute("true")
return { rules = {} }
-- want 1: "os" is not defined: write a string in quotes, and a local before its use
