-- market_list: put an item out of its seller's inventory on the market.
--
-- KEYS market
-- ARGV itemid sellerid price
-- REPLY - 1 when it is there, 0 when the seller does not have it
--
-- @allow undeclared-key: the listing makes its keys of the ids, and so is not for a cluster
local market, itemid, sellerid, price = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local inventory = 'inventory:' .. sellerid

if redis.call('SISMEMBER', inventory, itemid) == 0 then
  return 0
end
redis.call('ZADD', market, price, itemid .. '.' .. sellerid)
redis.call('SREM', inventory, itemid)
return 1
