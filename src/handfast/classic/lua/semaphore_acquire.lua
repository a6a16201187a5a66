-- semaphore_acquire: take a place if there is one.
--
-- KEYS semaphore
-- ARGV identifier limit now oldest
-- REPLY - the identifier when a place was taken, nothing when there was none
--
-- The times stay text, and so lose no digit in here.
--
-- @allow clock: the listing goes by its callers' clocks, which is its known flaw
local semaphore, identifier, limit = KEYS[1], ARGV[1], tonumber(ARGV[2])
local now, oldest = ARGV[3], ARGV[4]

redis.call('ZREMRANGEBYSCORE', semaphore, '-inf', oldest)
if redis.call('ZCARD', semaphore) < limit then
  redis.call('ZADD', semaphore, now, identifier)
  return identifier
end
return false
