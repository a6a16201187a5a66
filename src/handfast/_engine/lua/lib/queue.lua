-- queue: handing free permits to the waiters.
--
-- USES now now_text write_record read_record grant settle
-- GIVES hand_over

-- Whether a connection is subscribed to an inbox. Where the user may not ask, yes.
local function has_subscriber(inbox)
  return redis.pcall('PUBSUB', 'NUMSUB', inbox)[2] ~= 0
end

-- Publish a grant of no length, which makes the waiter ask again. Returns whether its inbox has a subscriber.
local function wake(token, inbox)
  return redis.call('PUBLISH', inbox, 'granted ' .. token .. ' 0 ' .. now_text .. ' 0') > 0
end

-- Wake a waiter for several names, which takes all its permits itself. Returns whether it is there: then it keeps its
-- place for the claim window. One that was woken before is not woken again.
local function wake_multi(s, token, waiter)
  local CLAIM_WINDOW_US = 2000000 -- 2 s, as CLAIM_MS of _engine/calls.py
  local until_us = now + CLAIM_WINDOW_US
  if not (waiter.wait_until <= until_us and has_subscriber(waiter.inbox) or wake(token, waiter.inbox)) then
    return false
  end
  local wait_until = string.format('%.0f', math.min(waiter.wait_until, until_us))
  local record = write_record(waiter.weight, waiter.limit, 0, wait_until, 0, waiter.since, waiter.owner)
  redis.call('HSET', s.tokens, token, record)
  return true
end

-- Grant a waiter its permits for its claim window, and publish that. Returns the fence; nothing where its inbox has no
-- subscriber, and then the permits are free again.
local function grant_waiter(s, token, waiter)
  local claim_ms = waiter.claim_ms
  local fence = grant(s, token, waiter.weight, waiter.limit, claim_ms, waiter.owner)
  local message = 'granted ' .. token .. ' ' .. fence .. ' ' .. now_text .. ' ' .. claim_ms .. '000'
  if redis.call('PUBLISH', waiter.inbox, message) > 0 then
    return fence
  end
  redis.call('ZREM', s.holders, token)
  s.used = s.used - waiter.weight
end

-- Serve the head of the queue. Returns whether the next waiter may be served, and the fence of `me` if it was
-- granted. Invariant 2: the head fits and is granted, or all wait. Invariant 6: a head that is gone (its wait-lease
-- lapsed, or its inbox has no subscriber) is dropped at once where another waiter could have what is free. A head
-- that wants more than the limit is dropped as well, and woken to learn it.
local function serve_head(s, me, my_ttl_ms)
  local head = redis.call('ZRANGE', s.queue, 0, 0)[1]
  if not head or head == me and not my_ttl_ms then
    return false
  end
  local waiter = read_record(redis.call('HGET', s.tokens, head))
  local alive = waiter and waiter.wait_until >= now
  local limit_in_force = waiter and (s.limit or waiter.limit)
  local fits = alive and s.used + waiter.weight <= limit_in_force
  local exceeds_limit = alive and waiter.weight > limit_in_force
  if alive and not fits and not exceeds_limit then
    -- Its inbox is asked for only where it keeps others from what is free, or from `me`, which may want less.
    local in_the_way = head ~= me and (my_ttl_ms or s.used < limit_in_force)
    if not in_the_way or has_subscriber(waiter.inbox) then
      return false
    end
  end
  if fits and waiter.claim_ms == 0 and wake_multi(s, head, waiter) then
    return false
  end
  redis.call('ZREM', s.queue, head)
  local fence
  if fits and head == me then
    fence = grant(s, head, waiter.weight, waiter.limit, my_ttl_ms, waiter.owner)
  elseif fits and waiter.claim_ms > 0 then
    fence = grant_waiter(s, head, waiter)
  elseif exceeds_limit then
    wake(head, waiter.inbox)
  end
  if not fence then
    redis.call('HDEL', s.tokens, head)
    return true
  end
  -- No other waiter fits once the limit is reached. A limit of 1 is taken for all others', which saves locks a look
  -- at the next waiter; should that one bring a larger limit, it gets in when it asks again.
  local full = s.used >= limit_in_force and (s.limit or limit_in_force == 1)
  return not full, head == me and fence
end

-- Give the free permits to the waiters in their order. `me`, the token that is calling, is not woken: it gets its
-- whole ttl, or without one nothing here. Returns 1 if the queue may go on, else 0, and the fence of `me` if it was
-- granted.
local function hand_over(s, me, my_ttl_ms)
  local MAX_SERVED = 100 -- waiters that are served or skipped; the next call goes on (invariant 13)
  local more, my_fence = 1, nil
  for _ = 1, MAX_SERVED do
    local goes_on, fence = serve_head(s, me, my_ttl_ms)
    my_fence = fence or my_fence
    if not goes_on then
      more = 0
      break
    end
  end
  settle(s)
  return more, my_fence
end
