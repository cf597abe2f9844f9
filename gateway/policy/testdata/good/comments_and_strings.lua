--[[ return { rules = 1 } ]]
--[==[ goto ]] 40LL ]==]
-- größe goto 0b11
local path = '/v1/sales/*/orders';
return {
  rules = {
    { name = "ip", key = 'ip', rate = "1r/s"; match = { path = path } };
  },
}
