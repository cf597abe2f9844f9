-- rebuild_dead_letters: deletes letters of orders that SQL has settled, and adds letters of orders without a unit or
-- slot.
--
-- KEYS 1 guard    hash  fence, deployment
--      2 dead     zset  keys of dead letters by the time they were added, ms
--      3 letters  hash  key -> dead letter, JSON
--      4 index    zset  dead letters by sale (include/dead_letters)
-- ARGV 1 "<fence> <deployment>"
--      then three per letter: order id, its message, reason; an empty message deletes the letter
-- Returns "ok"; or "fenced" if a later rebuild has begun or Redis was emptied, and nothing changed.

-- include clock
-- include dead_letters

local guard, dead, letters, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- include check_fence
-- include check_swapped
check_letter_types(dead, letters, index)
local now = now_ms()

for i = 2, #ARGV, 3 do
  local id, message, reason = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if message == '' then
    drop_letter(dead, letters, index, id)
  else
    put_letter(dead, letters, index, id, encode_letter({ unit = 'none', message = message, reason = reason }, now), now)
  end
end
return 'ok'
