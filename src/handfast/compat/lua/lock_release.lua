-- lock_release: give the lock up and wake those who wait for it.
--
-- KEYS lock past
-- ARGV token channel
-- REPLY released
-- REPLY lost
--
-- TWICE still `released`: `past` remembers it for a minute. That is read first, since another client
--   with the same token may hold the key by now.
-- LATE once the token is gone from the key, nothing is changed.
-- MEMORY the first write is a DEL, which passes at maxmemory and lets the rest through.
local lock, past = KEYS[1], KEYS[2]
local token, channel = ARGV[1], ARGV[2]

if redis.call('GET', past) == 'over' then
  return {'released'}
end
if redis.call('GET', lock) ~= token then
  return {'lost'}
end
redis.call('DEL', lock)
redis.call('SET', past, 'over', 'PX', 60000)
redis.pcall('PUBLISH', channel, 'released') -- without the right to it, those who wait will find out by asking
return {'released'}
