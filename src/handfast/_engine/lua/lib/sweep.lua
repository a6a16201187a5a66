-- sweep: counting the permits that are out.
--
-- USES now weight_of require_memory
-- GIVES settle first_expiry sweep

-- Write `used` down. With no holders left the field goes: an empty set of holders says it all.
local function settle(s)
  if not s.stored_used or s.used == s.stored_used then
    return
  end
  if s.used > 0 then
    redis.call('HSET', s.tokens, 'used', s.used)
    s.stored_used = s.used
  else
    redis.call('HDEL', s.tokens, 'used')
    s.stored_used = nil
  end
end

-- When the next lease ends, if there is any. It may have ended and not be swept yet.
local function first_expiry(s)
  return tonumber(redis.call('ZRANGE', s.holders, 0, 0, 'WITHSCORES')[2])
end

-- Remove expired leases, so that `used` says what is out now (invariant 1). Returns when the next lease ends.
local function sweep(s)
  local MAX_SWEPT = 100 -- leases; the next call goes on (invariant 13)
  local next_expiry = first_expiry(s)
  if next_expiry and next_expiry <= now then
    -- An acquire must not get past maxmemory by the ZREM below.
    require_memory(s.holders)
    local expired = redis.call('ZRANGEBYSCORE', s.holders, '-inf', now, 'LIMIT', 0, MAX_SWEPT)
    for _, record in ipairs(redis.call('HMGET', s.tokens, unpack(expired))) do
      s.used = s.used - weight_of(record)
    end
    redis.call('ZREM', s.holders, unpack(expired))
    redis.call('HDEL', s.tokens, unpack(expired))
    settle(s)
    next_expiry = first_expiry(s)
  end
  if not next_expiry then
    s.used = 0
  end
  return next_expiry
end
