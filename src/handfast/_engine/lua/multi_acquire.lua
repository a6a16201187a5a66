-- multi_acquire: ask for several locks; get all of them at once, or enter every queue.
--
-- KEYS holders queue tokens tombstones more...
-- ARGV token ttl_ms wait_ms max_waiters ticket owner
-- REPLY granted fence lease_us
-- REPLY queued now_us position retry_us ticket
-- REPLY busy retry_us
-- REPLY full length
-- REPLY finished
--
-- `more` are the keys of further names, four each; arguments and replies are those of permit_acquire. The token holds
-- nothing while it waits, and nothing is handed over to it: it stands in all queues with a claim of 0, is woken when
-- it is the head of one that is free, and sends this script again. All names are granted with one fence, larger than
-- any that they had.
--
-- It enters all queues in one step, never keeps a part of its places, and has one score in all of them: its ticket, or
-- one that is larger than all scores there. So any two tokens stand in the same order wherever they meet, also after
-- one of them has lost places and has taken them again: no two wait for each other.
--
-- TWICE the same answer: a holder finds its grant and fence, a waiter its places.
-- LATE after its release or cancel the token has a tombstone: `finished`, and nothing changes.
-- MEMORY the first write of every path is one that is refused at maxmemory; only a waiter that is
--   in all queues already goes on, since it takes up nothing new.

-- @include clock
-- @include memory
-- @include expiry
-- @include record
-- @include state
-- @include grant
-- @include reset
-- @include sweep
-- @include queue
-- @include waiters

local token, ttl_ms, wait_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local max_waiters, ticket, owner = tonumber(ARGV[4]), ARGV[5], ARGV[6]

-- First look at each name, and write nothing.
local names, free, held, placed, length = {}, 0, 0, 0, 0
local min_fence, granted_fence, lease_end, since = now, 0, math.huge, ticket ~= '0' and ticket
for k = 1, #KEYS, 4 do
  local holders, queue, tokens, tombstones = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  if redis.call('ZSCORE', tombstones, token) then
    return {'finished'}
  end
  local s = load_state(holders, queue, tokens, token)
  names[#names + 1] = s
  local record = read_record(s.record)
  local deadline = record and tonumber(redis.call('ZSCORE', holders, token) or 0) or 0
  if deadline > now then
    held = held + 1
    granted_fence, lease_end = math.max(granted_fence, record.fence), math.min(lease_end, deadline)
  elseif record and (not since or since == record.since) and redis.call('ZSCORE', queue, token) then
    placed, since = placed + 1, record.since
  end
  free = free + (redis.call('EXISTS', holders, queue) == 0 and 1 or 0)
  length = math.max(length, redis.call('ZCARD', queue))
  min_fence = math.max(min_fence, s.fence + 1)
end

local function grant_all()
  for _, s in ipairs(names) do
    grant(s, token, 1, 1, ttl_ms, owner, min_fence)
    raise_ttl(s.tokens, ttl_ms + tokens_grace_ms(s.limit))
  end
  return {'granted', min_fence, ttl_ms * 1000}
end

-- Enter the queue of a name, or renew the wait-lease there.
local function enter(s)
  local wait_until = string.format('%.0f', now + wait_ms * 1000)
  redis.call('HSET', s.tokens, token, write_record(1, 1, 0, wait_until, 0, since, owner))
  redis.call('ZADD', s.queue, 'NX', since, token)
  raise_ttl(s.queue, wait_ms + QUEUE_GRACE_MS)
  raise_ttl(s.tokens, wait_ms + ttl_ms + tokens_grace_ms(s.limit))
end

-- Serve the waiters before the token. Returns its position, whether the queue may go on, and when a lease ends here.
local function serve(s)
  sweep(s)
  local more = hand_over(s, token)
  return redis.call('ZRANK', s.queue, token) + math.min(s.used, 1), more, first_expiry(s)
end

-- Give up what the token holds of a name, and its place in the queue.
local function leave(s)
  if redis.call('ZREM', s.holders, token) == 1 then
    s.used = s.used - weight_of(s.record)
    settle(s)
  end
  redis.call('ZREM', s.queue, token)
end

if held == #names then
  return {'granted', granted_fence, lease_end - now}
end
if free == #names then
  for _, s in ipairs(names) do
    drop_stale_state(s)
  end
  return grant_all()
end

if placed == #names then
  allow_at_maxmemory(KEYS[1])
else
  if held == 0 and not since and length >= max_waiters then
    length = 0
    for _, s in ipairs(names) do
      length = math.max(length, evict_waiters(s))
    end
    if length >= max_waiters then
      return {'full', length}
    end
  end
  require_memory(KEYS[1])
  local score = now
  for _, s in ipairs(names) do
    leave(s)
    local last = redis.call('ZRANGE', s.queue, -1, -1, 'WITHSCORES')
    score = math.max(score, (tonumber(last[2]) or 0) + 1)
  end
  since = since or string.format('%.0f', score)
end
for _, s in ipairs(names) do
  enter(s)
end
local position, retry_us = 0, -1
for _, s in ipairs(names) do
  local place, more, next_expiry = serve(s)
  position = math.max(position, place)
  if more == 1 then
    position, retry_us = math.max(position, 1), 0
    break -- enough for one call
  elseif place > 0 and next_expiry then
    retry_us = math.max(retry_us, next_expiry - now, 0)
  end
end
if position == 0 then
  for _, s in ipairs(names) do
    leave(s)
  end
  return grant_all()
end
if wait_ms == 0 then
  for _, s in ipairs(names) do
    leave(s)
    redis.call('HDEL', s.tokens, token)
  end
  return {'busy', retry_us}
end
return {'queued', now, position - 1, retry_us, tonumber(since)}
