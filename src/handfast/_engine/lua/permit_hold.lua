-- permit_hold: let no one in for a while, or end that. Holders keep their leases, and waiters their places.
--
-- KEYS state tokens
-- ARGV times by reason owner
-- PACK times <dddd ttl_ms grace_ms shown_us from
-- REPLY held until_us holding left_us next_from
-- REPLY other until_us
-- REPLY ended was_held more
--
-- A hold is identified by its end. shown_us is the end of the hold that the caller knows; 0: the caller knows that there is
-- none; -1: the caller knows nothing. If the name has another hold, or none, the reply is `other` with the end of the hold
-- that is there, or 0, and nothing is done.
--
-- ttl_ms above 0 sets a hold from now on, in place of an earlier hold. The act is noted with by and reason, see
-- lib/state.lua. owner is the text of the hold's record, as lib/record.lua says: no channels, the label of the operator's
-- client, and the reason as a word. A grace_ms of 0 or more asks the holders to end, as permit_overtake.lua does; -1 asks
-- none.
-- ttl_ms 0 with a grace_ms of 0 or more leaves the hold as it is, and asks the holders again, from the lease end `from` on.
-- left_us is the time until the first of these holders is to be revoked, by the same call; -1 if no holder was asked.
-- holding is the number of holders. Of more than 100 holders next_from is where to go on, else 0.
-- ttl_ms 0 with a grace_ms of -1 ends the hold, and serves the queue. Without a hold was_held is 0, whatever shown_us is, and
-- the queue is served as well. more is 1 when 100 waiters were served: send the call again.
--
-- TWICE the end is set anew; with a shown_us of 0 or more the second call finds another hold, and the reply is `other`. After
--   an end by hand the second call finds no hold. Leases of holders that were asked end earlier, so of more than 100 holders
--   next_from may differ.
-- LATE the call overrides a hold that was set meanwhile; with a shown_us of 0 or more it changes nothing then.
-- MEMORY the first write is one that passes at maxmemory.
-- CUT a user who lacks a right is refused before the first write, see lib/rights.lua.
--   An end is noted first: cut off there, the hold goes on, and the same call ends it. Cut off between the writes that remove
--   the hold, its permits count until all leases beside it end: no one gets in, and no permit is out twice. Cut off behind
--   these writes, the queue is not served until the same call comes.
--   A new hold that is cut off counts, and may lack its record: likewise; a hold that it replaces goes on. Holders that were
--   not asked yet are asked by the next call, and the hold is noted after that.

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
-- @include permit_rights

local MOST = 1000000000 -- permits of a hold

local ttl_ms, grace_ms, shown_us, from = struct.unpack('<dddd', ARGV[1])
local by, reason, owner = ARGV[2], ARGV[3], ARGV[4]
local sets, ends = ttl_ms > 0, ttl_ms == 0 and grace_ms < 0

local function note(what)
  redis.call('HSET', state, 'last', struct.pack('<d', now) .. what .. ' ' .. by .. ' ' .. reason)
end

load_name(KEYS[1], KEYS[2], redis.call('HGET', KEYS[1], 's'))
local its_end = hold_end() or 0
if shown_us >= 0 and its_end ~= shown_us and not (ends and its_end == 0) then
  return 'other ' .. struct.pack('<d', its_end)
end
require_act_rights()
allow_at_maxmemory()
if ends and its_end > 0 then
  note('unhold') -- first: a script that was cut off is sent again
end
sweep()
if ends then
  if drop_lease(HOLD) then
    save()
  end
  return 'ended ' .. struct.pack('<dd', its_end > 0 and 1 or 0, (hand_over()))
end
if sets then
  its_end = now + ttl_ms * 1000
  live_for(ttl_ms)
  soonest = out > 0 and math.min(soonest, its_end) or its_end
  if not lease_of(HOLD) then -- an earlier hold is written over: cut off, it goes on
    out = out + MOST
  end
  save(HOLD, struct.pack('<ddddd', its_end, MOST, 0, 0, 0) .. owner .. string.format(' hold=%.0f', its_end))
  put(its_end, HOLD)
end
local first_end, next_from = math.huge, 0
if grace_ms >= 0 then
  first_end, next_from = ask_holders(grace_ms, by, reason, from)
end
if sets then
  note('hold')
elseif changed then
  save()
end
local others = redis.call('ZCOUNT', tokens, string.format('(%.0f', now), FINISHED) - 1
local holding = others + (lease_end > now and 1 or 0)
local left_us = first_end < math.huge and first_end - now or -1
return 'held ' .. struct.pack('<dddd', its_end, holding, left_us, next_from)
