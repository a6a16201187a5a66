-- queue: counting the permits that are out, and handing free ones to the line.
--
-- USES holders queue tokens now now_text used stored resized write_record hold
-- GIVES read_record earliest sweep settle hand_over
local function read_record(record)
  local weight, limit, claim_ms, wait_until, fence_text, since, who, inbox =
    string.match(record, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ((%S+) .*)$')
  return tonumber(weight), tonumber(limit), tonumber(claim_ms), tonumber(wait_until), tonumber(fence_text), since, who,
    inbox
end

-- Write the count down. With no holders left there is none: an empty set of holders says it all.
local function settle()
  if not stored or used == stored then
    return
  end
  if used > 0 then
    redis.call('HSET', tokens, 'used', used)
    stored = used
  else
    redis.call('HDEL', tokens, 'used')
    stored = nil
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

-- Whether anybody listens at an inbox, without waking them. Without the right to know, one believes it.
local function heard(inbox)
  return redis.pcall('PUBSUB', 'NUMSUB', inbox)[2] ~= 0
end

-- Ring a waiter with a grant of no length, which says: ask again. Whether anybody heard it.
local function call_back(token, inbox)
  return redis.call('PUBLISH', inbox, 'granted ' .. token .. ' 0 ' .. now_text .. ' 0') > 0
end

-- Give the free permits to the line. Invariant 2: the head fits and gets them, or all wait.
-- Invariant 6: a head that is gone is dropped at once where somebody else could have what is free: its
-- wait-lease has lapsed, or nobody listens at its inbox. One that wants more permits than there are is
-- rung out of the line, to be told so.
-- One whose claim is 0 wants other names as well and takes its permits itself, all at once: it is
-- rung and has 2 s to come, in which nobody passes it.
-- `me`, the token that is calling, needs no ring and gets its whole ttl, or nothing here without one.
-- Invariant 13: at most 100 heads a call. Answers whether the line may go on (1, else 0), and
-- the fence of `me` if it was granted.
local function hand_over(me, my_ttl_ms)
  local more, my_fence = 1, nil
  for _ = 1, 100 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head or head == me and not my_ttl_ms then
      more = 0
      break
    end
    local record = redis.call('HGET', tokens, head)
    local weight, limit, claim_ms, wait_until, _, since, who, inbox = read_record(record or '')
    local alive = wait_until and wait_until >= now
    local most = resized or limit
    local fits = alive and used + weight <= most
    if alive and not fits and weight <= most then
      -- Whether it is there is asked where it stands in the way of what is free, or of me, who may want less.
      local asked = head ~= me and (my_ttl_ms or used < most)
      if not asked or heard(inbox) then
        more = 0
        break
      end
    end
    if fits and claim_ms == 0 and (wait_until <= now + 2000000 and heard(inbox) or call_back(head, inbox)) then
      wait_until = string.format('%.0f', math.min(wait_until, now + 2000000))
      redis.call('HSET', tokens, head, write_record(weight, limit, 0, wait_until, 0, since, who))
      more = 0
      break
    end
    redis.call('ZREM', queue, head)
    local granted = false
    if fits and head == me then
      my_fence, granted = hold(head, weight, limit, my_ttl_ms, who), true
    elseif fits and claim_ms > 0 then
      local grant = head .. ' ' .. hold(head, weight, limit, claim_ms, who) .. ' ' .. now_text
      granted = redis.call('PUBLISH', inbox, 'granted ' .. grant .. ' ' .. claim_ms .. '000') > 0
      if not granted then
        redis.call('ZREM', holders, head)
        used = used - weight
      end
    elseif alive and weight > most then
      call_back(head, inbox)
    end
    if not granted then
      redis.call('HDEL', tokens, head)
    elseif used >= most and (resized or most == 1) then
      -- Nobody else fits. A limit of 1 is taken for everybody's, which saves locks the look at the next one;
      -- should that one say more, it gets in when it asks again.
      more = 0
      break
    end
  end
  settle()
  return more, my_fence
end
