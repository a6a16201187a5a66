-- market_purchase: give the seller its price and the buyer the item.
--
-- KEYS market
-- ARGV buyerid itemid sellerid
-- REPLY - 1 when it was bought, 0 when it is not on the market, or the buyer has not as much
--
-- @allow undeclared-key: the listing makes its keys of the ids, and so is not for a cluster
local market, buyerid, itemid, sellerid = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local buyer, seller, inventory = 'users:' .. buyerid, 'users:' .. sellerid, 'inventory:' .. buyerid
local item = itemid .. '.' .. sellerid

local price = tonumber(redis.call('ZSCORE', market, item))
local funds = tonumber(redis.call('HGET', buyer, 'funds')) or 0
if not price or funds < price then
  return 0
end
redis.call('HINCRBY', seller, 'funds', string.format('%.0f', price))
redis.call('HINCRBY', buyer, 'funds', string.format('%.0f', 0 - price)) -- -price would make of 0 a -0, which is refused
redis.call('SADD', inventory, itemid)
redis.call('ZREM', market, item)
return 1
