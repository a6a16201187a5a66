-- permit_revoke: take the leases of a name away by force and let the line go on.
--
-- KEYS holders queue tokens
-- ARGV up_to_fence reason
-- REPLY revoked count more
--
-- Only grants with a fence up to up_to_fence are taken, so whoever comes next is safe.
-- Each holder's home is rung, so that it learns its loss at once.
-- more is 1 when 100 waiters were served or skipped and the line may go on: send it again.
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
local count = 0
for _, token in ipairs(redis.call('ZRANGE', holders, 0, -1)) do
  local record = redis.call('HGET', tokens, token)
  local weight, _, _, _, granted, _, who = read_record(record or '')
  if not record or granted <= up_to_fence then
    redis.call('ZREM', holders, token)
    redis.call('HDEL', tokens, token)
    used, count = used - (weight or 0), count + 1
    if who then
      redis.call('PUBLISH', string.match(who, '^%S+ (%S+)'), 'revoked ' .. token .. ' ' .. reason)
    end
  end
end
settle()
sweep()
local more = hand_over()
return {'revoked', count, more}
