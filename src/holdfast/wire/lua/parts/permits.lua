-- permits: counting the permits that are out, granting one request, handing free ones to the line.
--
-- USES holders queue tokens last_fence limit now keep
-- GIVES read_record write_record sweep hold hand_over
--
-- A token's record in `tokens` is one line of text:
--   weight  claim_ms  wait_until_us  fence  since_us  inbox  home  label
-- and `who` is the text from the inbox on. While a token waits, its fence is 0.
-- The field `used` of `tokens` holds the weights of all tokens in `holders`.

local function read_record(record)
  local weight, claim_ms, wait_until, fence, since, who, inbox =
    string.match(record, '^(%d+) (%d+) (%d+) (%d+) (%d+) ((%S+) .*)$')
  return tonumber(weight), tonumber(claim_ms), tonumber(wait_until), tonumber(fence), tonumber(since), who, inbox
end

-- Lua's tostring keeps 14 digits and a time in microseconds has 16: hence %.0f, here and below.
local function write_record(weight, claim_ms, wait_until, fence, since, who)
  return string.format('%.0f %.0f %.0f %.0f %.0f %s', weight, claim_ms, wait_until, fence, since, who)
end

-- Invariant 1 begins here: count what is out now, after sweeping up the leases that are over (at
-- most 100 a call; the next call goes on). Answers the count and the earliest deadline, if any.
-- Without the field `used` (an eviction) a name with holders counts as full: never one too many.
local function sweep(used)
  local first = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')
  if not first[1] then
    return 0
  end
  used = tonumber(used) or limit
  if tonumber(first[2]) > now then
    return used, tonumber(first[2])
  end
  local expired = redis.call('ZRANGEBYSCORE', holders, '-inf', now, 'LIMIT', 0, 100)
  -- Invariant 11: at maxmemory this changes nothing and is refused, unless the caller has already
  -- given something back. An acquire must not slip in through the ZREM below.
  redis.call('HSETNX', tokens, 'used', 0)
  for _, record in ipairs(redis.call('HMGET', tokens, unpack(expired))) do
    used = used - (record and read_record(record) or 0)
  end
  redis.call('ZREM', holders, unpack(expired))
  redis.call('HDEL', tokens, unpack(expired))
  first = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')
  if not first[1] then
    return 0
  end
  redis.call('HSET', tokens, 'used', used)
  return used, tonumber(first[2])
end

-- Grant one request. Invariant 3: the fence grows even where the key that remembers it was lost.
-- The record comes first: a holder without its weight must never be seen.
local function hold(token, weight, lease_ms, used, who)
  local fence = math.max((tonumber(redis.call('GET', last_fence)) or 0) + 1, now)
  redis.call('HSET', tokens, token, write_record(weight, lease_ms, 0, fence, now, who), 'used', used + weight)
  redis.call('ZADD', holders, now + lease_ms * 1000, token)
  keep(holders, lease_ms)
  keep(tokens, lease_ms)
  redis.call('SET', last_fence, string.format('%.0f', fence), 'PX', 3600000)
  return fence
end

-- Give the free permits to the line. Invariant 2: the head fits and gets them, or all wait.
-- Invariant 6: a head that is gone is dropped at once: its wait-lease has lapsed, or nobody hears
-- its inbox ring. `me`, the token that is calling, needs no ring and gets its whole ttl.
-- Invariant 13: at most 100 heads a call. Answers whether the line may go on (1, else 0), and
-- the fence of `me` if it was granted.
local function hand_over(used, me, my_ttl_ms)
  local my_fence
  for _ = 1, 100 do
    local head = used < limit and redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then
      return 0, my_fence
    end
    local record = redis.call('HGET', tokens, head)
    local weight, claim_ms, wait_until, _, _, who, inbox = read_record(record or '')
    local alive = record and wait_until >= now
    if alive and used + weight > limit then
      return 0, my_fence
    end
    redis.call('ZREM', queue, head)
    if alive and head == me then
      my_fence = hold(head, weight, my_ttl_ms, used, who)
      used = used + weight
    elseif alive then
      local fence = hold(head, weight, claim_ms, used, who)
      local bell = string.format('granted %s %.0f %.0f %.0f', head, fence, now, claim_ms * 1000)
      if redis.call('PUBLISH', inbox, bell) > 0 then
        used = used + weight
      else
        alive = false
        redis.call('ZREM', holders, head)
        redis.call('HSET', tokens, 'used', used)
      end
    end
    if not alive then
      redis.call('HDEL', tokens, head)
    end
  end
  return 1, my_fence
end
