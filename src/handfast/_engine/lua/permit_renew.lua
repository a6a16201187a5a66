-- permit_renew: let a lease last ttl_ms from now, or longer if it already does.
--
-- KEYS holders queue tokens
-- ARGV token ttl_ms
-- REPLY renewed lease_us
-- REPLY lost
--
-- TWICE the deadline is set, never added to.
-- LATE after a release it finds no holder and changes nothing; it never brings a lease back.
-- MEMORY the first write is a ZREM that removes nothing: it passes at maxmemory, and so does the rest.
local holders, queue, tokens = KEYS[1], KEYS[2], KEYS[3]
local token, ttl_ms = ARGV[1], tonumber(ARGV[2])
-- @include clock
-- @include expiry

local deadline = tonumber(redis.call('ZSCORE', holders, token) or 0)
if deadline <= now then
  return {'lost'}
end
deadline = math.max(deadline, now + ttl_ms * 1000)
redis.call('ZREM', holders, '')
keep(holders, ttl_ms + linger)
keep(tokens, ttl_ms + memory_of(redis.call('HEXISTS', tokens, 'limit') == 1))
keep(queue, ttl_ms + 3600000)
redis.call('ZADD', holders, deadline, token)
return {'renewed', deadline - now}
