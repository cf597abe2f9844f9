return {
  rules = {
-- want 4: syntax error at the end of the file
