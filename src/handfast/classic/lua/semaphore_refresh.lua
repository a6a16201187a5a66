-- semaphore_refresh: restart the time of a permit if the identifier still holds it.
--
-- KEYS semaphore
-- ARGV identifier now
-- REPLY - 1 if it was restarted, 0 if the permit was lost
--
-- @allow clock: the listing uses the clocks of its callers, which is its known flaw
local semaphore, identifier, now = KEYS[1], ARGV[1], ARGV[2]

if redis.call('ZSCORE', semaphore, identifier) then
  redis.call('ZADD', semaphore, now, identifier)
  return 1
end
return 0
