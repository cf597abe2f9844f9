-- rebuild_sale: stores the counted totals of a sale. rebuild_resume_sales lets it be bought.
--
-- KEYS 1 guard    hash    fence, deployment
--      2 sale     hash
--      3 stock    string  units left
--      4 sales    set     ids of the sales in this shard
--      5 returns  hash    order id -> number of its return, until its row has the number
-- ARGV 1 "<fence> <deployment>"
--      then the sale (include/write_sale)
-- Returns "ok"; or "fenced" if a later rebuild has begun or Redis was emptied, and nothing changed.

-- include write_sale

local guard, sale, stock, sales, returns = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

-- include check_fence
-- include check_swapped
write_sale(sale, stock, sales, returns, 2)
return 'ok'
