-- lock_release: give the lock up if it is still one's own.
--
-- KEYS lock
-- ARGV identifier
-- REPLY - 1 when it was given up, 0 when somebody else has it or nobody
local lock, identifier = KEYS[1], ARGV[1]

if redis.call('GET', lock) == identifier then
  return redis.call('DEL', lock)
end
return 0
