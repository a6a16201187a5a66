-- permits_renew: let a lease of several locks last ttl_ms from now, or longer if it already does.
--
-- KEYS holders_queue_tokens_past...
-- ARGV token ttl_ms
-- REPLY renewed lease_us
-- REPLY lost
--
-- Four keys a name. A lease that lost one of them is lost: then nothing is renewed.
--
-- TWICE the deadline is set, never added to.
-- LATE after a release it finds no holder and changes nothing; it never brings a lease back.
-- MEMORY the first write is a ZREM that removes nothing: it passes at maxmemory, and so does the rest.
local token, ttl_ms = ARGV[1], tonumber(ARGV[2])
-- @include clock
-- @include expiry

local deadlines, ends = {}, math.huge
for k = 1, #KEYS, 4 do
  local deadline = tonumber(redis.call('ZSCORE', KEYS[k], token) or 0)
  if deadline <= now then
    return {'lost'}
  end
  deadlines[k] = math.max(deadline, now + ttl_ms * 1000)
  ends = math.min(ends, deadlines[k])
end
redis.call('ZREM', KEYS[1], '')
for k = 1, #KEYS, 4 do
  local holders, queue, tokens = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  keep(holders, ttl_ms + linger)
  keep(tokens, ttl_ms + memory_of())
  keep(queue, ttl_ms + 3600000)
  redis.call('ZADD', holders, deadlines[k], token)
end
return {'renewed', ends - now}
