-- permit_acquire: ask for permits; be granted them now, or stand in line.
--
-- KEYS holders queue tokens past last_fence
-- ARGV token limit weight ttl_ms claim_ms wait_ms max_waiters who
-- REPLY granted fence lease_us
-- REPLY queued now_us position retry_us
-- REPLY busy retry_us
-- REPLY full length
-- REPLY over
--
-- wait_ms 0 asks without standing in line; else it is the wait-lease, which every call renews.
-- claim_ms is the first lease of a grant that is handed over later, ttl_ms of one given here.
-- retry_us is when the next lease ends, -1 if none does.
--
-- TWICE the same answer: a holder finds its grant and fence, a waiter its place.
-- LATE after its release or cancel it finds itself in `past`: `over`, and nothing changes.
-- MEMORY the first write of every path is one that is refused at maxmemory; only a waiter that is
--   in line already goes on, since it takes up nothing new.
local holders, queue, tokens, past, last_fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, limit, weight = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local ttl_ms, claim_ms, wait_ms = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local max_waiters, who = tonumber(ARGV[7]), ARGV[8]
-- @include clock
-- @include keep
-- @include permits

if redis.call('ZSCORE', past, token) then
  return {'over'}
end

local known, stored = unpack(redis.call('HMGET', tokens, token, 'used'))
local since = now
if known then
  local deadline = tonumber(redis.call('ZSCORE', holders, token) or 0)
  local held, _, _, fence, waiting_since = read_record(known)
  if deadline > now then
    return {'granted', fence, deadline - now}
  end
  if deadline > 0 then
    redis.call('HSETNX', tokens, 'used', 0)
    redis.call('ZREM', holders, token)
    stored = (tonumber(stored) or limit) - held
  end
  since = waiting_since
end

local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
local place = known and redis.call('ZRANK', queue, token)
if place then
  redis.call('HDEL', tokens, '')
end
local used, earliest = sweep(stored)

if not last[1] and used + weight <= limit then
  return {'granted', hold(token, weight, ttl_ms, used, who), ttl_ms * 1000}
end
if wait_ms == 0 and used + weight > limit then
  return {'busy', earliest and earliest - now or -1}
end

if not place then
  local length = redis.call('ZCARD', queue)
  if length >= max_waiters then
    return {'full', length}
  end
end
redis.call('HSET', tokens, token, write_record(weight, claim_ms, now + math.max(wait_ms, 1) * 1000, 0, since, who))
if not place then
  redis.call('ZADD', queue, (tonumber(last[2]) or 0) + 1, token)
end
keep(queue, wait_ms)
keep(tokens, wait_ms)

local more, fence
if used < limit then
  more, fence = hand_over(used, token, ttl_ms)
  if fence then
    return {'granted', fence, ttl_ms * 1000}
  end
  earliest = tonumber(redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2])
end
local retry_us = more == 1 and 0 or earliest and earliest - now or -1
if wait_ms == 0 then
  redis.call('ZREM', queue, token)
  redis.call('HDEL', tokens, token)
  return {'busy', retry_us}
end
return {'queued', now, redis.call('ZRANK', queue, token), retry_us}
