-- permit_acquire: ask for permits; be granted them now, or stand in line.
--
-- KEYS holders queue tokens past
-- ARGV token limit weight ttl_ms claim_ms wait_ms max_waiters who
-- REPLY granted fence lease_us
-- REPLY queued now_us position retry_us
-- REPLY busy retry_us
-- REPLY full length
-- REPLY never limit
-- REPLY over
--
-- wait_ms 0 asks without standing in line; else it is the wait-lease, which every call renews.
-- claim_ms is the first lease of a grant that is handed over later, ttl_ms of one given here.
-- retry_us is when the next lease ends, -1 if none does. limit counts unless an operator has set another
-- one: then that does, and a request that wants more than there are is told so.
--
-- TWICE the same answer: a holder finds its grant and fence, a waiter its place.
-- LATE after its release or cancel it finds itself in `past`: `over`, and nothing changes.
-- MEMORY the first write of every path is one that is refused at maxmemory; only a waiter that is
--   in line already goes on, since it takes up nothing new.
local holders, queue, tokens, past = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, limit, weight = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local ttl_ms, claim_ms, wait_ms = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local max_waiters, who = tonumber(ARGV[7]), ARGV[8]
if redis.call('ZSCORE', past, token) then
  return {'over'}
end
local known, stored, fence, resized = unpack(redis.call('HMGET', tokens, token, 'used', 'fence', 'limit'))
-- @include clock
-- @include expiry
-- @include grant
-- @include reset
local most = resized or limit

if not known and weight <= most and redis.call('EXISTS', holders, queue) == 0 then
  -- The short way, which most requests for a lock take: nobody holds anything, and nobody waits.
  start_afresh()
  local granted = hold(token, weight, ARGV[2], ttl_ms, who)
  keep(tokens, ttl_ms + memory)
  return {'granted', tonumber(granted), ttl_ms * 1000}
end
-- @include queue

local since, place = now_text, false
if known then
  local deadline = tonumber(redis.call('ZSCORE', holders, token) or 0)
  local held, _, _, _, granted, waiting_since = read_record(known)
  if deadline > now then
    return {'granted', granted, deadline - now}
  end
  if deadline > 0 then
    redis.call('ZADD', holders, 'XX', 0, '')
    redis.call('ZREM', holders, token)
    redis.call('HDEL', tokens, token)
    used = used - held
    settle()
  else
    since, place = waiting_since, redis.call('ZRANK', queue, token)
  end
elseif not stored and redis.call('ZSCORE', holders, token) then
  -- Its record was evicted, and with it how much it has and its fence: it begins anew.
  redis.call('ZADD', holders, 'XX', 0, '')
  redis.call('ZREM', holders, token)
end

if place then
  redis.call('HDEL', tokens, '')
end
local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
local ends = sweep()
if not last[1] and used + weight <= most then
  local granted = hold(token, weight, ARGV[2], ttl_ms, who)
  keep(tokens, ttl_ms + memory)
  return {'granted', tonumber(granted), ttl_ms * 1000}
end
if weight > most then
  if place then
    redis.call('ZREM', queue, token)
    redis.call('HDEL', tokens, token)
    hand_over()
  end
  return {'never', most}
end
local retry_us = ends and math.max(0, ends - now)
if wait_ms == 0 and used + weight > most then
  return {'busy', retry_us}
end

local position = place
if not place then
  position = last[1] and redis.call('ZCARD', queue) or 0
  if position >= max_waiters then
    -- @include waiters
    position = make_room()
  end
  if position >= max_waiters then
    return {'full', position}
  end
end
local wait_until = string.format('%.0f', now + wait_ms * 1000)
-- Into the record they go as they came: a number would have to be written out again.
redis.call('HSET', tokens, token, write_record(ARGV[3], ARGV[2], ARGV[5], wait_until, 0, since, who))
if not place then
  redis.call('ZADD', queue, (tonumber(last[2]) or 0) + 1, token)
end
-- The `tokens` will do for the grant that is handed over later; the line lives as long as they do.
keep(queue, wait_ms + 3600000)
keep(tokens, wait_ms + claim_ms + memory)

if used < most then
  local more, granted = hand_over(token, ttl_ms)
  if granted then
    return {'granted', tonumber(granted), ttl_ms * 1000}
  end
  ends = earliest()
  retry_us = more == 1 and 0 or ends and math.max(0, ends - now) or -1
  position = redis.call('ZRANK', queue, token)
end
if wait_ms == 0 then
  redis.call('ZREM', queue, token)
  redis.call('HDEL', tokens, token)
  return {'busy', retry_us}
end
return {'queued', now, position, retry_us}
