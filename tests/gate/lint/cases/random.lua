-- === always the same
return redis.call('LINDEX', KEYS[1], math.random(0, 9)) --! random
-- === seeded by the clock
math.randomseed(tonumber(redis.call('TIME')[2]))
return math.random(0, 9) --? random
-- === by the server
return redis.call('SRANDMEMBER', KEYS[1]) --? random
-- === taken by the server
return redis.call('SPOP', KEYS[1]) --? random
-- === seeded by the caller
local seed = tonumber(ARGV[1])
math.randomseed(seed)
return math.random(0, 9)
-- === seeded by the caller's text
math.randomseed(ARGV[1])
return math.random(0, 9)
