-- names_unrank: take names out of an index that ranks them.
--
-- KEYS names ranks
-- ARGV entries...
-- REPLY unranked
--
-- TWICE the same sets.
-- LATE it removes what was added again meanwhile: names are data, whose writers agree on an order.
-- MEMORY a ZREM passes at maxmemory.
local names, ranks = KEYS[1], KEYS[2]

redis.call('ZCARD', ranks) -- what is no sorted set fails here, before anything is written
redis.call('ZREM', names, unpack(ARGV))
redis.call('ZREM', ranks, unpack(ARGV))
return {'unranked'}
