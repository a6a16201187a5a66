-- grant: granting one request.
--
-- USES holders tokens now keep linger memory_of stored fence resized
-- GIVES now_text used memory write_record hold
--
-- A token's record in `tokens` is one line of text:
--   weight  limit  claim_ms  wait_until_us  fence  since_us  inbox  home  label
-- and `who` is the text from the inbox on. While a token waits, its fence is 0. Beside the records
-- stand `used`, the weights of all in `holders`, `fence`, the latest one, and, once an operator has
-- said so, `limit`, which then counts instead of the one that a request brings along. When the last
-- holder gives up what it had, `used` goes with it.
-- Times are written with %.0f: Lua's tostring keeps 14 digits, and a time in microseconds has 16.
local now_text = string.format('%.0f', now)

local function write_record(weight, limit, claim_ms, wait_until, fence, since, who)
  return weight .. ' ' .. limit .. ' ' .. claim_ms .. ' ' .. wait_until .. ' ' .. fence .. ' ' .. since .. ' ' .. who
end

-- How many permits are out, as this script goes on. Where the field is missing (an eviction) though
-- there are holders, the name counts as full until they are gone: never a permit too many.
stored, fence, resized = tonumber(stored), tonumber(fence) or 0, tonumber(resized)
local used = stored or math.huge
local memory = memory_of(resized)

-- Grant one request; answers its fence. Invariant 3: the fence grows even where it was forgotten, and
-- is `least` at least. The record comes first: a holder without its weight must never be seen.
local function hold(token, weight, limit, lease_ms, who, least)
  fence = math.max(fence + 1, now, least or 0)
  used = used + weight
  local fence_text = fence == now and now_text or string.format('%.0f', fence)
  local record = write_record(weight, limit, lease_ms, 0, fence_text, now_text, who)
  redis.call('HSET', tokens, token, record, 'used', used, 'fence', fence_text)
  stored = used
  redis.call('ZADD', holders, now + lease_ms * 1000, token)
  if used == weight then
    redis.call('PEXPIRE', holders, lease_ms + linger + 60000)
  else
    keep(holders, lease_ms + linger)
  end
  return fence_text
end
