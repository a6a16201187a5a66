-- lock_acquire: acquire the lock if it is free.
--
-- KEYS lock
-- ARGV identifier lock_seconds
-- REPLY - the status OK if it was acquired, nil if it is taken
local lock, identifier, lock_seconds = KEYS[1], ARGV[1], tonumber(ARGV[2])

if redis.call('EXISTS', lock) == 0 then
  return redis.call('SETEX', lock, lock_seconds, identifier)
end
return false
