-- permit_revoke: take the leases of a name away by force, and let the waiters go on.
--
-- KEYS holders queue tokens
-- ARGV up_to_fence reason from
-- REPLY revoked count more next_from
--
-- Only grants with a fence up to up_to_fence are taken, so later holders are safe. Each holder is sent a message on its
-- control channel, so that it learns its loss at once.
-- At most 1,000 leases are looked at in the order of their ends, from `from` on: -inf at first. more is 1
-- when there are others, or the queue may go on: send it again with next_from. A lease that is renewed
-- in between ends later, so it is met again and not missed.
--
-- TWICE the second time those grants are gone, and no other lease is touched.
-- LATE newer grants have larger fences and stay.
-- MEMORY the first write is a ZREM, which passes at maxmemory and lets the rest through.

-- @include clock
-- @include memory
-- @include expiry
-- @include record
-- @include state
-- @include grant
-- @include sweep
-- @include queue

local holders, queue, tokens = KEYS[1], KEYS[2], KEYS[3]
local up_to_fence, reason, from = tonumber(ARGV[1]), ARGV[2], ARGV[3]

-- Leases that one call looks at.
local MAX_REVOKED = 1000

local s = load_state(holders, queue, tokens, '')
allow_at_maxmemory(holders)
sweep(s)
local found = redis.call('ZRANGEBYSCORE', holders, from, '+inf', 'WITHSCORES', 'LIMIT', 0, MAX_REVOKED)
local count = 0
for i = 1, #found, 2 do
  local token = found[i]
  local record = read_record(redis.call('HGET', tokens, token))
  if not record or record.fence <= up_to_fence then
    redis.call('ZREM', holders, token)
    redis.call('HDEL', tokens, token)
    count = count + 1
    if record then
      s.used = s.used - record.weight
      local control = string.match(record.owner, '^%S+ (%S+)')
      redis.call('PUBLISH', control, 'revoked ' .. token .. ' ' .. reason)
    end
  end
end
settle(s)
sweep(s)
local more = hand_over(s)
local next_from = '+inf'
if #found == 2 * MAX_REVOKED then
  next_from, more = found[#found], 1
  if next_from == from then
    next_from = '(' .. from
  end
end
return {'revoked', count, more, next_from}
