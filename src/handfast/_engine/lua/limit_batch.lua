-- limit_batch: admit requests under many limiters that are plain.
--
-- KEYS keys...
-- ARGV requests rate
-- PACK requests <Bc0d token cost
-- REPLY - doubles: the time, and for each limiter the rest after the admission, or -1
--
-- keys are four of each limiter: queue, tombstones, settings and window. requests has token and cost for each limiter.
-- rate is limit and per_ms as doubles, the same for all.
--
-- A limiter is plain if it has a window alone, and at most 16 admissions there that have lapsed. A request that fits
-- is admitted as by limit_acquire. For any other request this script changes nothing, replies -1, and the client sends
-- limit_acquire. The limiters have nothing to do with each other: any part of them may have admitted.
--
-- TWICE a token that was admitted is in the window, so it is -1. limit_acquire finds the admission by the token.
-- LATE after a cancel, or a settling that knows of copies, there are tombstones: nothing changes. A client whose batch
--   had no reply counts it as a copy of each request.
-- MEMORY the server refuses the first write at maxmemory.

-- @include clock
-- @include costs

local MAX_LAPSED = 16 -- of each window; limit_acquire drops more
local requests, limit, per_ms = ARGV[1], struct.unpack('<dd', ARGV[2])
local answers, at = {now}, 1
for i = 1, #KEYS / 4 do
  local queue, tombstones, settings, window = KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i]
  local token, cost, left
  token, cost, at = struct.unpack('<Bc0d', requests, at)
  local member = token .. string.format(' %.0f', cost)
  if redis.call('EXISTS', queue, tombstones, settings) == 0 then
    local sum, is_there = unpack(redis.call('ZMSCORE', window, '=', member))
    if not is_there and (sum or redis.call('EXISTS', window) == 0) then
      local lapsed = redis.call('ZCOUNT', window, '(0', now - per_ms * 1000)
      local used = -(sum or 0)
      if lapsed > 0 and lapsed <= MAX_LAPSED then
        used = used - costs_of(redis.call('ZRANGE', window, 1, lapsed))
      end
      if lapsed <= MAX_LAPSED and used + cost <= limit then
        if lapsed > 0 then
          redis.call('ZADD', window, 'XX', 0, '') -- changes nothing; no request gets past maxmemory by the removal below
          redis.call('ZREMRANGEBYRANK', window, 0, lapsed)
        end
        left = limit - used - cost
        redis.call('ZADD', window, left - limit, '=', now, member)
        redis.call('PEXPIRE', window, per_ms + 1000)
      end
    end
  end
  answers[i + 1] = left or -1
end
return struct.pack('<' .. string.rep('d', #answers), unpack(answers))
