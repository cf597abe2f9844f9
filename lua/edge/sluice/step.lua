-- step(f) -> something whose length, #step, is what f returns. LuaJIT compiles a piece of a function that it often comes by, and goes on into what
-- the function returns to, and so forth: one piece would have more values than it can keep ("too many spill slots"), and after some tries it would
-- interpret most of the way for ever. It does not go on to where a metamethod was called. What a request has to go through is therefore written in
-- steps, and whoever takes them one after the other is not compiled. Of all metamethods a userdata's length is called with the least ado.
return function(f)
  local userdata = newproxy(true)
  getmetatable(userdata).__len = f
  return userdata
end
