-- each(f) -> a function(from, to, a, b), which calls f(i, a, b) for the whole numbers from `from` to `to`. It ends when
-- a call returns a value, and returns the results of that call: at most two. accel/each.lua replaces it.
return function(f)
  return function(from, to, a, b)
    for i = from, to do
      local x, y = f(i, a, b)
      if x ~= nil then
        return x, y
      end
    end
  end
end
