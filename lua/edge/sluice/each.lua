-- each(f) -> a function(from, to, a, b), which calls f(i, a, b) for the whole numbers from `from` to `to`. It ends when
-- a call returns something, and returns that: at most two values. accel/each.lua stands in for it.
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
