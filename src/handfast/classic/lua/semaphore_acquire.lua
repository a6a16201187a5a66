-- semaphore_acquire: acquire a permit if one is free.
--
-- KEYS semaphore
-- ARGV identifier limit now oldest
-- REPLY - the identifier if a permit was acquired, nil if none is free
--
-- The times stay strings, so that they lose no digits.
--
-- @allow clock: the listing uses the clocks of its callers, which is its known flaw
local semaphore, identifier, limit = KEYS[1], ARGV[1], tonumber(ARGV[2])
local now, oldest = ARGV[3], ARGV[4]

redis.call('ZREMRANGEBYSCORE', semaphore, '-inf', oldest)
if redis.call('ZCARD', semaphore) < limit then
  redis.call('ZADD', semaphore, now, identifier)
  return identifier
end
return false
