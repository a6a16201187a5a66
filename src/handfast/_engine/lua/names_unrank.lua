-- names_unrank: remove names from an index that ranks them.
--
-- KEYS names ranks
-- ARGV entries...
-- REPLY unranked
--
-- TWICE the same sets.
-- LATE it removes names that were added again since: the writers of data must agree on an order.
-- MEMORY a ZREM passes at maxmemory.
local names, ranks = KEYS[1], KEYS[2]

redis.call('ZCARD', ranks) -- fails on a key of another type before anything is written
redis.call('ZREM', names, unpack(ARGV))
redis.call('ZREM', ranks, unpack(ARGV))
return {'unranked'}
