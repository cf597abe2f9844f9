-- Finds the name that a misspelled one probably means. gateway/policy/nearest.go is the same in Go.

local min = math.min

-- distance(a, b) -> the Damerau-Levenshtein distance (optimal string alignment)
local function distance(a, b)
  local before2, before, row = {}, {}, {}
  for j = 0, #b do
    before[j] = j
  end
  for i = 1, #a do
    row[0] = i
    for j = 1, #b do
      local cost = a:byte(i) == b:byte(j) and 0 or 1
      row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + cost)
      if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        row[j] = min(row[j], before2[j - 2] + 1)
      end
    end
    before2, before, row = before, row, before2
  end
  return before[#b]
end

-- nearest(wrong, names) -> the nearest name, at a distance of at most two or a fifth of its length; or nil
return function(wrong, names)
  if #wrong > 32 then
    return nil
  end
  local best, least = nil, math.huge
  for _, name in ipairs(names) do
    local d = distance(wrong, name)
    if d < least and d <= math.max(2, math.floor(#name / 5)) and d < #name then
      best, least = name, d
    end
  end
  return best
end
