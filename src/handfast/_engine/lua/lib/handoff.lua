-- handoff: handing free permits to the waiters.
--
-- USES now state tokens lease_end waiting length fence set_limit gives_back changed inbox_of save used grant
--   leave_queue
-- GIVES has_subscriber hand_over

-- @include inbox

-- Serve the head of the queue. Returns whether the next waiter may be served, and the fence of `me` if it was
-- granted.
-- Invariant 2: the head fits and is granted, or all wait. Invariant 6: a head that is gone (its wait-lease lapsed,
-- or its inbox has no subscriber) is dropped at once where another waiter could have what is free. A head that
-- wants more than the limit is dropped as well, and woken to learn it.
local function serve_head(me, my_ttl_ms)
  local head, score = unpack(redis.call('ZRANGEBYSCORE', tokens, '-inf', '(0', 'WITHSCORES', 'LIMIT', 0, 1))
  if not head then
    length, waiting, changed = 0, 0, true
    return false
  elseif head == me and not my_ttl_ms then
    return false
  end
  local its_record = redis.call('HGET', state, head)
  local wait_until, weight, limit, claim_ms = 0, 0, 0, 0
  if its_record then
    wait_until, weight, limit, claim_ms = struct.unpack('<dddd', its_record)
  end
  if wait_until < now then
    leave_queue(head)
    return true
  end
  if set_limit > 0 then
    limit = set_limit
  end
  local is_out, inbox = used(), inbox_of(its_record)
  local fits, exceeds_limit = is_out + weight <= limit, weight > limit
  -- The inbox is asked for only where the head can be served, or where it keeps others from what is free, or `me`,
  -- which may want less.
  if head ~= me and (fits or exceeds_limit or my_ttl_ms or is_out < limit) and not has_subscriber(inbox) then
    leave_queue(head)
    return true
  elseif exceeds_limit then
    leave_queue(head)
    publish(head, inbox, 0, 0)
    return true
  elseif not fits then
    return false
  elseif claim_ms == 0 then
    -- It takes all its permits itself, and keeps its place for the claim window. It is woken once; by another waiter
    -- that asks not at all if it asked itself within the last second: then this name is not what it waits for.
    if wait_until > now + CLAIM_US and not (me and wait_until > now + WAIT_US - 1000000) then
      if gives_back then
        redis.call('HDEL', state, '') -- may be the first write: see lib/memory.lua
      end
      redis.call('HSET', state, head, struct.pack('<d', now + CLAIM_US) .. string.sub(its_record, WEIGHT_AT))
      publish(head, inbox, 0, 0)
    end
    return false
  end
  if lease_end == 0 then
    leave_queue(head)
  else
    length = length - 1
  end
  local lease_ms = head == me and my_ttl_ms or claim_ms
  grant(head, string.sub(its_record, WEIGHT_AT), lease_ms, score + FINISHED)
  if head ~= me then
    publish(head, inbox, fence, lease_ms * 1000)
  end
  -- No other waiter fits once the limit is reached. A limit of 1 is taken for all others', which saves locks a look
  -- at the next waiter; should that one bring a larger limit, it gets in when it asks again.
  return is_out + weight < limit or set_limit == 0 and limit > 1, head == me and fence
end

-- Give the free permits to the waiters in their order, and save the state. `me`, the token that is calling, is not
-- woken: it gets its whole ttl, or without one nothing here. Returns 1 if the queue may go on, else 0, and the
-- fence of `me` if it was granted.
local function hand_over(me, my_ttl_ms)
  local MAX_SERVED = 100 -- waiters that are served or skipped; the next call goes on (invariant 13)
  local more, my_fence = 0, nil
  if length > 0 then
    more = 1
    for _ = 1, MAX_SERVED do
      local goes_on, its_fence = serve_head(me, my_ttl_ms)
      my_fence = my_fence or its_fence
      if not goes_on then
        more = 0
        break
      end
    end
  end
  if changed then
    save()
  end
  return more, my_fence
end
