return {
  rules = {
-- want 4: syntax error at the end of the file: is a bracket or a quote not closed?
