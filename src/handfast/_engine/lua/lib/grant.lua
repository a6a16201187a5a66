-- grant: granting one request.
--
-- USES now HOLDERS_GRACE_MS raise_ttl write_record
-- GIVES now_text grant

local now_text = string.format('%.0f', now)

-- Grant permits for lease_ms, and return the fence as text. Invariant 3: the fence grows even where it was forgotten,
-- and is at least min_fence. The record is written first: a holder without its weight must never be seen.
local function grant(s, token, weight, limit, lease_ms, owner, min_fence)
  local fence = math.max(s.fence + 1, now, min_fence or 0)
  local used = s.used + weight
  local fence_text = fence == now and now_text or string.format('%.0f', fence)
  local record = write_record(weight, limit, lease_ms, 0, fence_text, now_text, owner)
  redis.call('HSET', s.tokens, token, record, 'used', used, 'fence', fence_text)
  redis.call('ZADD', s.holders, now + lease_ms * 1000, token)
  raise_ttl(s.holders, lease_ms + HOLDERS_GRACE_MS, used == weight)
  s.fence, s.used, s.stored_used = fence, used, used
  return fence_text
end
