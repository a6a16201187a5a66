-- permits: counting the permits that are out, granting one request, handing free ones to the line.
--
-- USES holders queue tokens limit now keep stored fence
-- GIVES now_text used read_record write_record earliest sweep settle hold hand_over
--
-- A token's record in `tokens` is one line of text:
--   weight  claim_ms  wait_until_us  fence  since_us  inbox  home  label
-- and `who` is the text from the inbox on. While a token waits, its fence is 0. Beside the records
-- stand two fields: `used`, the weights of all in `holders`, and `fence`, the latest one.
-- Times are written with %.0f: Lua's tostring keeps 14 digits, and a time in microseconds has 16.
local now_text = string.format('%.0f', now)

local function read_record(record)
  local weight, claim_ms, wait_until, fence_text, since, who, inbox =
    string.match(record, '^(%d+) (%d+) (%d+) (%d+) (%d+) ((%S+) .*)$')
  return tonumber(weight), tonumber(claim_ms), tonumber(wait_until), tonumber(fence_text), since, who, inbox
end

local function write_record(weight, claim_ms, wait_until, fence_text, since, who)
  return weight .. ' ' .. claim_ms .. ' ' .. wait_until .. ' ' .. fence_text .. ' ' .. since .. ' ' .. who
end

-- How many permits are out, as this script goes on. Where the field is missing (an eviction) though
-- there are holders, the name counts as full until they are gone: never a permit too many.
stored, fence = tonumber(stored), tonumber(fence) or 0
local used = stored or limit

-- Write the count down. With no holders left it need not be: an empty set of holders says it all.
local function settle()
  if stored and used ~= stored and used > 0 then
    redis.call('HSET', tokens, 'used', used)
    stored = used
  end
end

-- When the next lease ends, if any is there. It may be over already, and not yet swept up.
local function earliest()
  return tonumber(redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2])
end

-- Invariant 1 begins here: sweep up the leases that are over, at most 100 a call (the next call
-- goes on), so that `used` tells what is out now. Answers when the next lease ends.
local function sweep()
  local ends = earliest()
  if ends and ends <= now then
    -- Invariant 11: this changes nothing and is refused at maxmemory, unless the caller has already
    -- given something back. An acquire must not slip in through the ZREM below.
    redis.call('ZADD', holders, 'XX', 0, '')
    local expired = redis.call('ZRANGEBYSCORE', holders, '-inf', now, 'LIMIT', 0, 100)
    for _, record in ipairs(redis.call('HMGET', tokens, unpack(expired))) do
      used = used - (record and read_record(record) or 0)
    end
    redis.call('ZREM', holders, unpack(expired))
    redis.call('HDEL', tokens, unpack(expired))
    settle()
    ends = earliest()
  end
  if not ends then
    used = 0
  end
  return ends
end

-- Grant one request; answers its fence. Invariant 3: the fence grows even where it was forgotten.
-- The record comes first: a holder without its weight must never be seen. The `tokens` live an
-- hour longer than any lease, so that the fence outlives every step that a clock may take back.
local function hold(token, weight, lease_ms, who)
  fence = math.max(fence + 1, now)
  used = used + weight
  local fence_text = fence == now and now_text or string.format('%.0f', fence)
  local record = write_record(weight, lease_ms, 0, fence_text, now_text, who)
  redis.call('HSET', tokens, token, record, 'used', used, 'fence', fence_text)
  stored = used
  redis.call('ZADD', holders, now + lease_ms * 1000, token)
  if used == weight then
    redis.call('PEXPIRE', holders, lease_ms + 60000)
  else
    keep(holders, lease_ms)
  end
  return fence_text
end

-- Give the free permits to the line. Invariant 2: the head fits and gets them, or all wait.
-- Invariant 6: a head that is gone is dropped at once: its wait-lease has lapsed, or nobody hears
-- its inbox ring. `me`, the token that is calling, needs no ring and gets its whole ttl.
-- Invariant 13: at most 100 heads a call. Answers whether the line may go on (1, else 0), and
-- the fence of `me` if it was granted.
local function hand_over(me, my_ttl_ms)
  local my_fence
  for _ = 1, 100 do
    local head = used < limit and redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then
      settle()
      return 0, my_fence
    end
    local record = redis.call('HGET', tokens, head)
    local weight, claim_ms, wait_until, _, _, who, inbox = read_record(record or '')
    local alive = record and wait_until >= now
    if alive and used + weight > limit then
      settle()
      return 0, my_fence
    end
    redis.call('ZREM', queue, head)
    if alive and head == me then
      my_fence = hold(head, weight, my_ttl_ms, who)
    elseif alive then
      local granted = head .. ' ' .. hold(head, weight, claim_ms, who)
      local bell = 'granted ' .. granted .. ' ' .. now_text .. ' ' .. claim_ms .. '000'
      if redis.call('PUBLISH', inbox, bell) == 0 then
        alive = false
        redis.call('ZREM', holders, head)
        used = used - weight
      end
    end
    if not alive then
      redis.call('HDEL', tokens, head)
    end
  end
  settle()
  return 1, my_fence
end
