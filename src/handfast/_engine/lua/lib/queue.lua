-- queue: handing free permits to the waiters.
--
-- USES now now_text write_record read_record grant settle
-- GIVES hand_over

-- Whether a connection to this very server is subscribed to an inbox. Asked before anything is written or published for
-- a waiter: replicas and other nodes of a cluster repeat a message, and a waiter that hears it there would believe it.
local function has_subscriber(inbox)
  return redis.call('PUBSUB', 'NUMSUB', inbox)[2] > 0
end

-- Publish a grant. One of no length makes the waiter ask again.
local function publish_grant(token, inbox, fence, lease_us)
  redis.call('PUBLISH', inbox, 'granted ' .. token .. ' ' .. fence .. ' ' .. now_text .. ' ' .. lease_us)
end

-- Wake a waiter for several names, which takes all its permits itself: it keeps its place for the claim window. One
-- that was woken before is not woken again. Nor is one by another waiter that asks (`me`) if it asked itself within the
-- last second: then this name is not what it waits for.
local function wake_multi(s, token, waiter, me)
  local CLAIM_WINDOW_US = 2000000 -- 2 s, as CLAIM_MS of _engine/calls.py
  local ASKED_LATELY_US = 59000000 -- what is then left of the wait-lease, WAIT_MS of _engine/calls.py
  local until_us = now + CLAIM_WINDOW_US
  if waiter.wait_until > until_us and not (me and waiter.wait_until > now + ASKED_LATELY_US) then
    publish_grant(token, waiter.inbox, 0, 0)
    local wait_until = string.format('%.0f', until_us)
    local record = write_record(waiter.weight, waiter.limit, 0, wait_until, 0, waiter.since, waiter.owner)
    redis.call('HSET', s.tokens, token, record)
  end
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
  local has_to_wait = alive and not fits and waiter.weight <= limit_in_force
  if has_to_wait and not my_ttl_ms and s.used >= limit_in_force then
    return false -- it keeps no other from what is free, nor `me`, which may want less
  end
  alive = alive and (head == me or has_subscriber(waiter.inbox))
  if alive and has_to_wait then
    return false
  end
  if alive and fits and waiter.claim_ms == 0 then
    wake_multi(s, head, waiter, me)
    return false
  end
  redis.call('ZREM', s.queue, head)
  if not (alive and fits) then
    if alive then
      publish_grant(head, waiter.inbox, 0, 0)
    end
    redis.call('HDEL', s.tokens, head)
    return true
  end
  local lease_ms = head == me and my_ttl_ms or waiter.claim_ms
  local fence = grant(s, head, waiter.weight, waiter.limit, lease_ms, waiter.owner)
  if head ~= me then
    publish_grant(head, waiter.inbox, fence, lease_ms .. '000')
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
