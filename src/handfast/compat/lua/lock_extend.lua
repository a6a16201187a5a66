-- lock_extend: add to the time that a lock has left.
--
-- KEYS lock past
-- ARGV token more_ms
-- REPLY extended
-- REPLY lost
--
-- `past` belongs to this one call. A key without a TTL counts as lost, as it does for redis-py's Lock.
--
-- TWICE it is added once: `past` remembers it for a minute.
-- LATE once the token is gone from the key, nothing is changed; before, it still adds.
-- MEMORY the first write is a PEXPIRE, which passes at maxmemory and lets the rest through.
local lock, past = KEYS[1], KEYS[2]
local token, more_ms = ARGV[1], tonumber(ARGV[2])

if redis.call('GET', lock) ~= token then
  return {'lost'}
end
if redis.call('EXISTS', past) == 1 then
  return {'extended'}
end
local left_ms = redis.call('PTTL', lock)
if left_ms < 0 then
  return {'lost'}
end
redis.call('PEXPIRE', lock, string.format('%.0f', left_ms + more_ms))
redis.call('SET', past, 'extended', 'PX', 60000)
return {'extended'}
