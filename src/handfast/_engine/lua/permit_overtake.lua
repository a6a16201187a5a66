-- permit_overtake: dismiss all who came before a waiter, and ask the holders to end.
--
-- KEYS state tokens
-- ARGV token grace_ms by reason
-- REPLY asked left_us more
-- REPLY gone
-- ALONE gone
--
-- All waiters before `token` leave the queue: each gets a tombstone, and a message to ask, by which it learns that it is
-- superseded. One that comes back later finds that in the state, see lib/overtaken.lua. With a grace_ms of 0 or more as many holders are asked to end as have the permits that the token lacks, each by a message on its control channel, which
-- has the time that is left, the time from its grant until then, both in ms, `by` and `reason`. The first one that asks sets the time, as the word `wanted` of the
-- holder's record: later ones may bring it forward, and do not put it off. A holder whose time is over is revoked, and the
-- queue is served. With a grace_ms of -1 no holder is asked, and none while an operator holds the name.
-- left_us is the time from now until the first holder is to be revoked, by sending this again; -1 if none was asked. more
-- is 1 when 100 waiters were dismissed and others are before `token`: send it again.
-- gone: the token does not wait, or not any more.
--
-- TWICE the holders are asked again, and those who have come before the token meanwhile are dismissed.
-- LATE the token does not wait any more: `gone`, and nothing changes.
-- MEMORY the first write is one that passes at maxmemory, or a HSET that is repeated behind one.

-- @include clock
-- @include record
-- @include state
-- @include grant
-- @include memory
-- @include tombstones
-- @include overtaken
-- @include revoke
-- @include ask
-- @include hold
-- @include sweep
-- @include queue
-- @include handoff

local MAX_DISMISSED = 100 -- the next call goes on (invariant 13)

local token, grace_ms, by, reason = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
load_name(KEYS[1], KEYS[2], redis.call('HGET', KEYS[1], 's'))
local ticket = ticket_of(token)
if not ticket then
  return 'gone '
end
allow_at_maxmemory()
note_overtaking(ticket, grace_ms >= 0)
sweep()

local before = string.format('(%.0f', ticket - FINISHED)
local dismissed = redis.call('ZRANGEBYSCORE', tokens, '-inf', before, 'LIMIT', 0, MAX_DISMISSED)
for _, other in ipairs(dismissed) do
  local its_record = redis.call('HGET', state, other)
  add_tombstone(other, 'superseded') -- in the place of its ticket: cut off behind this, it is dismissed
  redis.call('HDEL', state, other)
  length, changed = length - 1, true
  local inbox = its_record and inbox_of(its_record)
  if inbox and has_subscriber(inbox) then
    publish(other, inbox, 0, 0)
  end
end

local first_end = math.huge
local my_record = grace_ms >= 0 and redis.call('HGET', state, token)
if my_record and not hold_end() then -- while an operator holds the name, no one gets in
  local weight, limit = struct.unpack('<dd', my_record, WEIGHT_AT)
  local free = (set_limit > 0 and set_limit or limit) - used()
  first_end = ask_holders(grace_ms, by, reason, 0, weight - free)
end
local more = hand_over()
if #dismissed == MAX_DISMISSED then
  more = 1
end
return 'asked ' .. struct.pack('<dd', first_end < math.huge and first_end - now or -1, more)
