-- line: counting the permits that are out, and handing free ones to the line.
--
-- USES holders queue tokens limit now now_text used stored hold
-- GIVES read_record earliest sweep settle hand_over
local function read_record(record)
  local weight, claim_ms, wait_until, fence_text, since, who, inbox =
    string.match(record, '^(%d+) (%d+) (%d+) (%d+) (%d+) ((%S+) .*)$')
  return tonumber(weight), tonumber(claim_ms), tonumber(wait_until), tonumber(fence_text), since, who, inbox
end

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
