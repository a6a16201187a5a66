-- permit_hold: let no one in for a while, or end that. Holders keep their leases, and waiters their places.
--
-- KEYS state tokens
-- ARGV times by reason owner
-- PACK times <dddd ttl_ms grace_ms known_us from
-- REPLY held until_us holding left_us next_from
-- REPLY other
-- REPLY ended was_held more
--
-- ttl_ms counts from now, in place of an earlier hold's; 0 ends it, and serves the queue. What was done is noted with by
-- and reason, see lib/state.lua. owner is the text of the hold's record, as lib/record.lua says: no channels, the label of
-- the operator's client, and the reason as a word. With a grace_ms of 0 or more the holders are asked to end, as
-- permit_overtake.lua does it; -1 asks none. left_us is the time from now until the first of those holders is to be revoked, by
-- sending this again; -1 if none was asked. holding is how many hold the name. Of more than 100 holders next_from is
-- where to go on, else 0. more is 1 when 100 waiters were served: send it again.
-- With known_us, the end of a hold that was set before, nothing is set: the holders are asked again, from the lease end `from`
-- on. other: that hold is not in force any more, since it was ended or another one has taken its place.
--
-- TWICE the end is set anew; of an end by hand, there is no hold the second time. Leases of holders that were asked end
--   earlier, so of more than 100 holders next_from may be another one.
-- LATE it overrides what was set meanwhile; with known_us nothing is changed by it then.
-- MEMORY the first write is one that passes at maxmemory.

-- @include clock
-- @include record
-- @include state
-- @include grant
-- @include memory
-- @include tombstones
-- @include revoke
-- @include ask
-- @include sweep
-- @include queue
-- @include handoff
-- @include hold

local MOST = 1000000000 -- permits of a hold

local ttl_ms, grace_ms, known_us, from = struct.unpack('<dddd', ARGV[1])
local by, reason, owner = ARGV[2], ARGV[3], ARGV[4]
load_name(KEYS[1], KEYS[2], redis.call('HGET', KEYS[1], 's'))
if known_us > 0 and hold_end() ~= known_us then
  return 'other '
end
allow_at_maxmemory()
sweep()
local was_held = known_us == 0 and drop_lease(HOLD)
if ttl_ms == 0 and known_us == 0 then
  if was_held then
    save()
    redis.call('HSET', state, 'last', struct.pack('<d', now) .. 'unhold ' .. by .. ' ' .. reason)
  end
  return 'ended ' .. struct.pack('<dd', was_held and 1 or 0, (hand_over()))
end
local its_end = known_us
if known_us == 0 then
  its_end = now + ttl_ms * 1000
  live_for(ttl_ms)
  soonest = out > 0 and math.min(soonest, its_end) or its_end
  out = out + MOST
  save(HOLD, struct.pack('<ddddd', its_end, MOST, 0, 0, 0) .. owner .. string.format(' hold=%.0f', its_end))
  put(its_end, HOLD)
end
local first_end, next_from = math.huge, 0
if grace_ms >= 0 then
  first_end, next_from = ask_holders(grace_ms, by, reason, from)
end
if known_us == 0 then
  redis.call('HSET', state, 'last', struct.pack('<d', now) .. 'hold ' .. by .. ' ' .. reason)
elseif changed then
  save()
end
local others = redis.call('ZCOUNT', tokens, string.format('(%.0f', now), FINISHED) - 1
local holding = others + (lease_end > now and 1 or 0)
local left_us = first_end < math.huge and first_end - now or -1
return 'held ' .. struct.pack('<dddd', its_end, holding, left_us, next_from)
