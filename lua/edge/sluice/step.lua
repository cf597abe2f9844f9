-- step(f) -> a table; to read a field of it is to call f. LuaJIT compiles a piece of a function that it often comes by, and goes on into what the
-- function returns to, and so forth: one piece would have more values than it can keep ("too many spill slots"), and after some tries it would
-- interpret most of the way for ever. It does not go on to where a field was read. What a request has to go through is therefore written in
-- steps, and whoever takes them one after the other is not compiled.
return function(f)
  return setmetatable({}, { __index = f })
end
