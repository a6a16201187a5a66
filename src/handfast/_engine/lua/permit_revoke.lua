-- permit_revoke: take the leases of a name away by force and let the line go on.
--
-- KEYS holders queue tokens
-- ARGV up_to_fence reason from
-- REPLY revoked count more next_from
--
-- Only grants with a fence up to up_to_fence are taken, so whoever comes next is safe.
-- Each holder's home is rung, so that it learns its loss at once.
-- At most 1,000 leases are looked at in the order of their ends, from `from` on: -inf at first. more is 1
-- when there are others, or the line may go on: send it again with next_from. A lease that is renewed
-- meanwhile ends later, so it is met again and not missed.
--
-- TWICE the second time those grants are gone and nobody else is touched.
-- LATE newer grants have larger fences and stay.
-- MEMORY the first write is a ZREM, which passes at maxmemory and lets the rest through.
local holders, queue, tokens = KEYS[1], KEYS[2], KEYS[3]
local up_to_fence, reason, from = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local stored, fence, resized = unpack(redis.call('HMGET', tokens, 'used', 'fence', 'limit'))
-- @include clock
-- @include expiry
-- @include grant
-- @include queue

redis.call('ZREM', holders, '')
sweep()
local some = redis.call('ZRANGEBYSCORE', holders, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
local count = 0
for i = 1, #some, 2 do
  local token = some[i]
  local record = redis.call('HGET', tokens, token)
  local weight, _, _, _, granted, _, who = read_record(record or '')
  if not granted or granted <= up_to_fence then
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
local next_from = '+inf'
if #some == 2000 then
  next_from, more = some[2000], 1
  if next_from == from then
    next_from = '(' .. from
  end
end
return {'revoked', count, more, next_from}
