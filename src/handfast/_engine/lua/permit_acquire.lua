-- permit_acquire: ask for permits; be granted them now, or enter the queue.
--
-- KEYS holders queue tokens tombstones
-- ARGV token limit weight ttl_ms claim_ms wait_ms max_waiters ticket owner
-- REPLY granted fence lease_us
-- REPLY queued now_us position retry_us ticket
-- REPLY busy retry_us
-- REPLY full length
-- REPLY exceeds_limit limit
-- REPLY finished
--
-- ttl_ms is the lease of a grant that this script gives; claim_ms is the first lease of one that is handed over later.
-- wait_ms is the wait-lease, which every call renews; 0 asks without entering the queue.
-- limit is in force unless an operator has set another one. A request above the limit in force gets exceeds_limit.
-- ticket is 0 at first, and then that of the first `queued` reply: the score of the token in the queue. A newcomer's is
-- the time, or one more than that of the last waiter. A token that the queue has lost since enters it by its ticket, so
-- before all that came later, and however many wait.
-- owner is the client's inbox, its control channel and its label, as lib/record.lua has them.
-- retry_us is the time from now until the next lease ends; -1 if there is none.
--
-- TWICE the same answer: a holder finds its grant and fence, a waiter its place.
-- LATE after its release or cancel the token has a tombstone: `finished`, and nothing changes.
-- MEMORY the first write of every path is one that is refused at maxmemory; only a waiter that is
--   in the queue already goes on, since it takes up nothing new.

-- @include clock
-- @include memory
-- @include expiry
-- @include record
-- @include state
-- @include grant
-- @include reset

local holders, queue, tokens, tombstones = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, limit, weight = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local ttl_ms, claim_ms, wait_ms = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local max_waiters, ticket, owner = tonumber(ARGV[7]), ARGV[8], ARGV[9]
if redis.call('ZSCORE', tombstones, token) then
  return {'finished'}
end
local s = load_state(holders, queue, tokens, token)
local limit_in_force = s.limit or limit

if not s.record and weight <= limit_in_force and redis.call('EXISTS', holders, queue) == 0 then
  -- The short way of most requests for a lock: no holders and no queue.
  drop_stale_state(s)
  grant(s, token, weight, ARGV[2], ttl_ms, owner)
  raise_ttl(tokens, ttl_ms + tokens_grace_ms(s.limit))
  return {'granted', s.fence, ttl_ms * 1000}
end

-- The functions of a part are made where it is included. Those that a free name does without come behind its short way,
-- and those that hand permits over behind the rest: at the top they would cost a free lock a quarter more instructions.
-- @include sweep

local since, place = ticket ~= '0' and ticket, false
if s.record then
  local deadline = tonumber(redis.call('ZSCORE', holders, token) or 0)
  local record = read_record(s.record)
  if deadline > now then
    return {'granted', record.fence, deadline - now}
  end
  if deadline > 0 then
    require_memory(holders)
    redis.call('ZREM', holders, token)
    redis.call('HDEL', tokens, token)
    s.used = s.used - record.weight
    settle(s)
  else
    place = (not since or since == record.since) and redis.call('ZRANK', queue, token)
    since = since or record.since
  end
elseif not s.stored_used and redis.call('ZSCORE', holders, token) then
  -- Its record was evicted, and with it its weight and its fence: it is granted again.
  require_memory(holders)
  redis.call('ZREM', holders, token)
end

if place then
  allow_at_maxmemory(holders)
end
local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
local next_expiry = sweep(s)
if not last[1] and s.used + weight <= limit_in_force then
  grant(s, token, weight, ARGV[2], ttl_ms, owner)
  raise_ttl(tokens, ttl_ms + tokens_grace_ms(s.limit))
  return {'granted', s.fence, ttl_ms * 1000}
end
local position, retry_us
if weight <= limit_in_force then
  retry_us = next_expiry and math.max(0, next_expiry - now)
  if wait_ms == 0 and s.used + weight > limit_in_force then
    return {'busy', retry_us}
  end

  position = place
  if not place then
    position = last[1] and redis.call('ZCARD', queue) or 0
    if position >= max_waiters and not since then
      -- @include waiters
      position = evict_waiters(s)
      if position >= max_waiters then
        return {'full', position}
      end
    end
  end
  local returns = since and not place
  since = since or string.format('%.0f', math.max(now, (tonumber(last[2]) or 0) + 1))
  local wait_until = string.format('%.0f', now + wait_ms * 1000)
  -- The numbers stay the texts that they came as: they would have to be written out again.
  redis.call('HSET', tokens, token, write_record(ARGV[3], ARGV[2], ARGV[5], wait_until, 0, since, owner))
  if not place then
    redis.call('ZADD', queue, since, token)
  end
  if returns then
    position = redis.call('ZRANK', queue, token)
  end
  -- The TTL of `tokens` covers the grant that is handed over later; the queue lives as long as they do.
  raise_ttl(queue, wait_ms + QUEUE_GRACE_MS)
  raise_ttl(tokens, wait_ms + claim_ms + tokens_grace_ms(s.limit))
  if s.used >= limit_in_force then
    return {'queued', now, position, retry_us, tonumber(since)}
  end
end

-- @include queue
if weight > limit_in_force then
  if place then
    redis.call('ZREM', queue, token)
    redis.call('HDEL', tokens, token)
    hand_over(s)
  end
  return {'exceeds_limit', limit_in_force}
end
local more, fence = hand_over(s, token, ttl_ms)
if fence then
  return {'granted', tonumber(fence), ttl_ms * 1000}
end
next_expiry = first_expiry(s)
retry_us = more == 1 and 0 or next_expiry and math.max(0, next_expiry - now) or -1
if wait_ms == 0 then
  redis.call('ZREM', queue, token)
  redis.call('HDEL', tokens, token)
  return {'busy', retry_us}
end
return {'queued', now, redis.call('ZRANK', queue, token), retry_us, tonumber(since)}
