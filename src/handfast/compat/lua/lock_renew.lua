-- lock_renew: let a lock last that long from now.
--
-- KEYS lock
-- ARGV token ttl_ms even_endless
-- REPLY renewed
-- REPLY lost
--
-- A key without a TTL counts as lost, as it does for redis-py's Lock, unless even_endless is 1.
--
-- TWICE the same, from the second time on.
-- LATE once the token is gone from the key, nothing is changed; before, it lasts that long from then.
-- MEMORY the only write is a PEXPIRE, which passes at maxmemory.
local lock = KEYS[1]
local token, ttl_ms, even_endless = ARGV[1], ARGV[2], ARGV[3] == '1'

if redis.call('GET', lock) ~= token then
  return {'lost'}
end
if not even_endless and redis.call('PTTL', lock) < 0 then
  return {'lost'}
end
redis.call('PEXPIRE', lock, ttl_ms)
return {'renewed'}
