-- sweep: removing what has expired.
--
-- USES now tokens state lease_end holder out soonest memory changed weight_of require_memory
-- GIVES next_expiry sweep

-- When the next lease ends, if there is any. It may have ended and not be swept yet.
local function next_expiry()
  local first = lease_end > 0 and lease_end or nil
  if out > 0 then
    local found = redis.call('ZRANGEBYSCORE', tokens, '(0', FINISHED, 'WITHSCORES', 'LIMIT', 0, 1)
    if found[1] then
      soonest = tonumber(found[2])
      first = math.min(first or soonest, soonest)
    else
      out, changed = 0, true
    end
  end
  return first
end

-- Remove expired leases, so that what is counted is out now (invariant 1), and expired tombstones.
local function sweep()
  local MAX_SWEPT = 100 -- of each; the next call goes on (invariant 13)
  local FORGET_EVERY = 16 -- one call in so many removes tombstones while later ones last: more than are added
  if lease_end > 0 and lease_end <= now then
    lease_end, holder, changed = 0, '', true
  end
  if out > 0 and soonest <= now then
    local expired = redis.call('ZRANGEBYSCORE', tokens, '(0', now, 'LIMIT', 0, MAX_SWEPT)
    if expired[1] then
      require_memory() -- an acquire must not get past maxmemory by the ZREM below
      for _, its_record in ipairs(redis.call('HMGET', state, unpack(expired))) do
        out = out - weight_of(its_record)
      end
      redis.call('HDEL', state, unpack(expired))
      redis.call('ZREM', tokens, unpack(expired))
    end
    next_expiry()
    changed = true
  end
  if memory > 0 and (memory <= now or now % FORGET_EVERY == 0) then
    local expired = redis.call('ZRANGEBYSCORE', tokens, FINISHED, FINISHED + now, 'LIMIT', 0, MAX_SWEPT)
    if expired[1] then
      require_memory()
      redis.call('ZREM', tokens, unpack(expired))
    end
    if memory <= now and #expired < MAX_SWEPT then
      memory, changed = 0, true
    end
  end
end
