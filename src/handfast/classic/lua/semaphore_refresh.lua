-- semaphore_refresh: let the time of a place begin anew if it is still one's own.
--
-- KEYS semaphore
-- ARGV identifier now
-- REPLY - 1 when it did, 0 when the place was lost
--
-- @allow clock: the listing goes by its callers' clocks, which is its known flaw
local semaphore, identifier, now = KEYS[1], ARGV[1], ARGV[2]

if redis.call('ZSCORE', semaphore, identifier) then
  redis.call('ZADD', semaphore, now, identifier)
  return 1
end
return 0
