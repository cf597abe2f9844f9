return {
  rules = {
-- want 4: unexpected end of the file: is a bracket not closed?
