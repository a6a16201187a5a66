-- market_list: move an item from the inventory of its seller to the market.
--
-- KEYS market
-- ARGV itemid sellerid price
-- REPLY - 1 if it is on the market, 0 if the seller does not have it
--
-- @allow undeclared-key: the listing builds its keys from the ids, so it does not work in a cluster
local market, itemid, sellerid, price = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local inventory = 'inventory:' .. sellerid

if redis.call('SISMEMBER', inventory, itemid) == 0 then
  return 0
end
redis.call('ZADD', market, price, itemid .. '.' .. sellerid)
redis.call('SREM', inventory, itemid)
return 1
