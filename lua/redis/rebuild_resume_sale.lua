-- rebuild_resume_sale: lets a rebuilt sale be bought again, as far as its switch and its window permit.
--
-- KEYS 1 guard  hash  fence, deployment
--      2 sale   hash
-- ARGV 1 "<fence> <deployment>"   2 version   3 switch
-- Returns "ok"; or "fenced" if a later rebuild has begun or Redis was emptied, and nothing changed.

-- include notify

local guard, sale = KEYS[1], KEYS[2]

-- include check_fence
redis.call('HSET', sale, 'version', ARGV[2], 'switch', ARGV[3])
notify(sale, 'opened', nil, ARGV[2])
return 'ok'
