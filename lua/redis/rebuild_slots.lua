-- rebuild_slots: corrects the slots of buyers.
--
-- KEYS 1 guard   hash  fence, deployment
--      2 buyers  hash  buyer -> order ids by slot (include/slots)
-- ARGV 1 "<fence> <deployment>"
--      then two per buyer: buyer, order ids by slot; empty if the buyer holds no order
-- Returns "ok"; or "fenced" if a later rebuild has begun or Redis was emptied, and nothing changed.

local guard, buyers = KEYS[1], KEYS[2]

-- include check_fence
-- include check_swapped
for i = 2, #ARGV, 2 do
  redis.call('HSET', buyers, ARGV[i], ARGV[i + 1])
end
return 'ok'
