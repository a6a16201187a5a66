-- grant: granting one request.
--
-- USES holders tokens limit now keep stored fence
-- GIVES now_text used write_record hold
--
-- A token's record in `tokens` is one line of text:
--   weight  claim_ms  wait_until_us  fence  since_us  inbox  home  label
-- and `who` is the text from the inbox on. While a token waits, its fence is 0. Beside the records
-- stand two fields: `used`, the weights of all in `holders`, and `fence`, the latest one.
-- Times are written with %.0f: Lua's tostring keeps 14 digits, and a time in microseconds has 16.
local now_text = string.format('%.0f', now)

local function write_record(weight, claim_ms, wait_until, fence_text, since, who)
  return weight .. ' ' .. claim_ms .. ' ' .. wait_until .. ' ' .. fence_text .. ' ' .. since .. ' ' .. who
end

-- How many permits are out, as this script goes on. Where the field is missing (an eviction) though
-- there are holders, the name counts as full until they are gone: never a permit too many.
stored, fence = tonumber(stored), tonumber(fence) or 0
local used = stored or limit

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
