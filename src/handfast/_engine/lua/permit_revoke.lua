-- permit_revoke: take leases of a name away by force, and let the waiters go on.
--
-- KEYS state tokens
-- ARGV up_to_fence reason from by least_fence
-- REPLY revoked count more next_from
-- ALONE revoked 0 0 0
--
-- Only grants with a fence from least_fence to up_to_fence are taken, so later holders are safe. A least_fence of 0 takes
-- all up to the other; the same number twice takes a single lease, since no two grants of a name share a fence. Where the
-- record of a lease was evicted, its fence is unknown: only a least_fence of 0 takes it.
--
-- Each holder is sent a message on its control channel, so that it learns its loss at once, and its token is remembered
-- as lost. At most 1,000 leases are looked at in the order of their ends, from `from` on: 0 at first. more is 1 when
-- there are others, or the queue may go on: send it again with next_from. A lease that is renewed in between ends later,
-- so it is met again and not missed. by is the label of the operator's client, percent-encoded: what was done is noted
-- with it, see lib/state.lua. Nothing is noted where nothing was taken. On a name with an operator's hold, the hold stays
-- and no waiter is served.
--
-- TWICE the second time those grants are gone, and no other lease is touched.
-- LATE newer grants have larger fences and stay. A single lease that its holder has released is gone: none is taken.
-- MEMORY the first write is one that passes at maxmemory.
-- CUT a user who lacks a right is refused before the first write, see lib/rights.lua. Cut off behind a message, its lease
--   is there, and the same call takes it; behind a lease, the others are there. What was taken is noted after the last
--   one: cut off before, the same call counts and notes only those that it takes itself. Cut off between the record of a
--   lease and its place in `tokens`, its fence is unknown: a single release leaves it there until its end.

-- @include clock
-- @include record
-- @include state
-- @include grant
-- @include memory
-- @include tombstones
-- @include revoke
-- @include sweep
-- @include queue
-- @include handoff
-- @include hold
-- @include permit_rights

local up_to_fence, reason, from, least_fence = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[5])

-- Leases that one call looks at.
local MAX_REVOKED = 1000

load_name(KEYS[1], KEYS[2], redis.call('HGET', KEYS[1], 's'))
require_act_rights()
allow_at_maxmemory()
gives_back = true
sweep()

-- Returns 1 if the lease was taken. Of a holder whose record was evicted, the fence is not known, and counts as 0. A hold
-- stays.
local function take(token, its_record)
  local its_fence = its_record and struct.unpack('<d', its_record) or 0
  if token == HOLD or its_fence < least_fence or its_fence > up_to_fence then
    return 0
  end
  revoke(token, its_record, reason)
  return 1
end

local count, found = lease_end > 0 and take(holder, record) or 0, {}
if out > 0 then
  found = redis.call('ZRANGEBYSCORE', tokens, from, FINISHED, 'WITHSCORES', 'LIMIT', 0, MAX_REVOKED)
end
for i = 1, #found, 2 do
  count = count + take(found[i], redis.call('HGET', state, found[i]))
end
if count > 0 then
  redis.call('HSET', state, 'last', struct.pack('<d', now) .. 'force_release ' .. ARGV[4] .. ' ' .. reason)
end
sweep()
local more, next_from = hand_over(), 0
if #found == 2 * MAX_REVOKED then
  next_from, more = tonumber(found[#found]), 1
  if next_from == from then
    next_from = next_from + 1
  end
end
return 'revoked ' .. struct.pack('<ddd', count, more, next_from)
