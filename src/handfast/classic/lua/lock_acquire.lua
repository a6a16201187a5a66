-- lock_acquire: take the lock if nobody has it.
--
-- KEYS lock
-- ARGV identifier lock_seconds
-- REPLY - the status OK when it was taken, nothing when somebody has it
local lock, identifier, lock_seconds = KEYS[1], ARGV[1], tonumber(ARGV[2])

if redis.call('EXISTS', lock) == 0 then
  return redis.call('SETEX', lock, lock_seconds, identifier)
end
return false
