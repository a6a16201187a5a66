-- lock_release: release the lock if the identifier still holds it.
--
-- KEYS lock
-- ARGV identifier
-- REPLY - 1 if it was released, 0 if the identifier does not hold it
local lock, identifier = KEYS[1], ARGV[1]

if redis.call('GET', lock) == identifier then
  return redis.call('DEL', lock)
end
return 0
