-- lock_release: give the lock up.
--
-- KEYS lock past
-- ARGV token
-- REPLY released
-- REPLY lost
--
-- TWICE still `released`: `past` remembers it for a minute. That is read first, since another client
--   with the same token may hold the key by now.
-- LATE once the token is gone from the key, nothing is changed.
-- MEMORY the first write is a DEL, which passes at maxmemory and lets the rest through.
local lock, past = KEYS[1], KEYS[2]
local token = ARGV[1]

if redis.call('GET', past) == 'over' then
  return {'released'}
end
if redis.call('GET', lock) ~= token then
  return {'lost'}
end
redis.call('DEL', lock)
redis.call('SET', past, 'over', 'PX', 60000)
return {'released'}
