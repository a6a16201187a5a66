-- permit_revoke: take the leases of a name away by force and let the line go on.
--
-- KEYS holders queue tokens
-- ARGV up_to_fence reason
-- REPLY revoked count more
--
-- Only grants with a fence up to up_to_fence are taken, so whoever comes next is safe.
-- Each holder's home is rung, so that it learns its loss at once.
-- more is 1 when there may be more to do: 1,000 leases were looked at and some taken, or 100 waiters
-- were served or skipped. Send it again.
--
-- TWICE the second time those grants are gone and nobody else is touched.
-- LATE newer grants have larger fences and stay.
-- MEMORY the first write is a ZREM, which passes at maxmemory and lets the rest through.
local holders, queue, tokens = KEYS[1], KEYS[2], KEYS[3]
local up_to_fence, reason = tonumber(ARGV[1]), ARGV[2]
local stored, fence, resized = unpack(redis.call('HMGET', tokens, 'used', 'fence', 'limit'))
-- @include clock
-- @include keep
-- @include grant
-- @include line

redis.call('ZREM', holders, '')
sweep()
local count, stay, left = 0, 0, true
for _ = 1, 10 do
  local some = redis.call('ZRANGE', holders, stay, stay + 99)
  for _, token in ipairs(some) do
    local record = redis.call('HGET', tokens, token)
    local weight, _, _, _, granted, _, who = read_record(record or '')
    if not granted or granted <= up_to_fence then
      redis.call('ZREM', holders, token)
      redis.call('HDEL', tokens, token)
      used, count = used - (weight or 0), count + 1
      if who then
        redis.call('PUBLISH', string.match(who, '^%S+ (%S+)'), 'revoked ' .. token .. ' ' .. reason)
      end
    else
      stay = stay + 1
    end
  end
  left = #some == 100
  if not left then
    break
  end
end
settle()
sweep()
local more = hand_over()
return {'revoked', count, left and count > 0 and 1 or more}
