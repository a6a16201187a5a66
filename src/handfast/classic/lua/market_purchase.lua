-- market_purchase: move the price to the seller and the item to the buyer.
--
-- KEYS market
-- ARGV buyerid itemid sellerid
-- REPLY - 1 if it was bought, 0 if it is not on the market or the buyer has too little
--
-- @allow undeclared-key: the listing builds its keys from the ids, so it does not work in a cluster
local market, buyerid, itemid, sellerid = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local buyer, seller, inventory = 'users:' .. buyerid, 'users:' .. sellerid, 'inventory:' .. buyerid
local item = itemid .. '.' .. sellerid

local price = tonumber(redis.call('ZSCORE', market, item))
local funds = tonumber(redis.call('HGET', buyer, 'funds')) or 0
if not price or funds < price then
  return 0
end
redis.call('HINCRBY', seller, 'funds', string.format('%.0f', price))
redis.call('HINCRBY', buyer, 'funds', string.format('%.0f', 0 - price)) -- for a price of 0, -price is -0, which HINCRBY refuses
redis.call('SADD', inventory, itemid)
redis.call('ZREM', market, item)
return 1
