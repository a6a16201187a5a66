-- grant: who has permits, and granting them.
--
-- USES now tokens state lease_end fence grants waited holder record out soonest changed weight_of save
--   live_for put
-- GIVES used lease_of drop_lease grant
--
-- One holder stands in the state itself, so that a lock needs nothing else. All others stand in `tokens`.

-- How many permits are out.
local function used()
  return lease_end > 0 and out + weight_of(record) or out
end

-- The end of a token's lease, which may be over, and its record; nothing if it holds nothing.
local function lease_of(token)
  if holder == token then
    if lease_end > 0 then
      return lease_end, record
    end
  elseif out > 0 then
    local score = tonumber(redis.call('ZSCORE', tokens, token) or 0)
    if score > 0 and score < FINISHED then
      return score, redis.call('HGET', state, token)
    end
  end
end

-- Take a lease away, without saving the state. Returns whether the token held anything.
local function drop_lease(token)
  local its_end, its_record = lease_of(token)
  if not its_end then
    return false
  elseif holder == token then
    lease_end = 0
  else
    redis.call('HDEL', state, token)
    redis.call('ZREM', tokens, token)
    out = out - weight_of(its_record)
    if not its_record then
      soonest = 0 -- for the sweep to look whether it was the last one
    end
  end
  changed = true
  return true
end

-- Grant permits for lease_ms to a token that has waited since that time, and save the state. `wants` is all that its
-- record has behind the mark.
-- Invariant 3: the fence grows even where it was forgotten, and is at least min_fence. What a holder has is counted
-- before it is seen. A waiter that takes the place in the state has left the queue before.
local function grant(token, wants, lease_ms, since, min_fence)
  fence = math.max(fence + 1, now, min_fence or 0)
  local wait_us = math.max(0, now - since)
  if wait_us >= AHEAD_FROM_US then
    local _, last = string.find(wants, ' ahead=', WEIGHT_AT, true)
    wait_us = last and math.max(0, wait_us - string.match(wants, '^%d+', last + 1)) or wait_us
  end
  grants, waited = grants + 1, waited + wait_us
  local its_record, its_end = struct.pack('<d', fence) .. wants, now + lease_ms * 1000
  live_for(lease_ms)
  if lease_end == 0 then
    lease_end, holder, record = its_end, token, its_record
    save()
  else
    soonest = out > 0 and math.min(soonest, its_end) or its_end
    out = out + weight_of(its_record)
    save(token, its_record)
    put(its_end, token)
  end
end
