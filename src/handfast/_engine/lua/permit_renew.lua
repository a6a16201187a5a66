-- permit_renew: let the lease of one or several names last ttl_ms from now, or longer if it already does.
--
-- KEYS holders queue tokens tombstones more...
-- ARGV token ttl_ms
-- REPLY renewed lease_us
-- REPLY lost
--
-- `more` are the keys of further names, four each. A lease that lost one of its names is lost: then nothing is renewed.
-- lease_us is the time from now until the lease ends; of several names, until the first one does.
--
-- TWICE the deadline is set, never added to.
-- LATE after a release it finds no holder and changes nothing; it never brings a lease back.
-- MEMORY the first write is a ZADD. Refused at maxmemory, it is repeated behind a ZREM that removes nothing, which
--   passes and lets the rest through.

-- @include clock
-- @include memory
-- @include expiry

local token, ttl_ms = ARGV[1], tonumber(ARGV[2])
local deadlines, lease_end = {}, math.huge
for k = 1, #KEYS, 4 do
  local deadline = tonumber(redis.call('ZSCORE', KEYS[k], token) or 0)
  if deadline <= now then
    return {'lost'}
  end
  deadlines[k] = math.max(deadline, now + ttl_ms * 1000)
  lease_end = math.min(lease_end, deadlines[k])
end
for k = 1, #KEYS, 4 do
  local holders, queue, tokens = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local limit = #KEYS == 4 and redis.call('HGET', tokens, 'limit') -- several names are locks, which have none
  if type(redis.pcall('ZADD', holders, deadlines[k], token)) == 'table' then
    allow_at_maxmemory(holders)
    redis.call('ZADD', holders, deadlines[k], token)
  end
  raise_ttl(holders, ttl_ms + HOLDERS_GRACE_MS)
  raise_ttl(tokens, ttl_ms + tokens_grace_ms(limit))
  raise_ttl(queue, ttl_ms + QUEUE_GRACE_MS)
end
return {'renewed', lease_end - now}
