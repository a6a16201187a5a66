-- permit_overtake: dismiss all who came before a waiter, and ask the holders to end.
--
-- KEYS state tokens
-- ARGV token grace_ms by reason
-- REPLY asked left_us more
-- REPLY gone
-- ALONE gone
--
-- All waiters before `token` leave the queue: each gets a tombstone, and a message to ask, by which it learns that it is
-- superseded. With a grace_ms of 0 or more the holders are asked to end, each by a message on its control channel, which
-- has the time that is left, the time from its grant until then, both in ms, `by` and `reason`. The first one that asks sets the time, as the word `wanted` of the
-- holder's record: later ones may bring it forward, and do not put it off. A holder whose time is over is revoked, and the
-- queue is served. With a grace_ms of -1 no holder is asked. Neither is a lock that rests (see permit_release.lua), nor
-- an operator's hold.
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
-- @include revoke
-- @include sweep
-- @include queue
-- @include handoff

local MAX_DISMISSED, MAX_ASKED = 100, 100 -- the next call goes on (invariant 13)

local token, grace_ms, by, reason = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
load_name(KEYS[1], KEYS[2], redis.call('HGET', KEYS[1], 's'))
local ticket = ticket_of(token)
if not ticket then
  return 'gone '
end
allow_at_maxmemory()
gives_back = true
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

-- Ask a holder, or take its lease if its time is over. Returns its record if that has to be saved.
local function ask(its_token, its_record)
  if not its_record or string.find(its_token, '^%p') then
    return nil
  end
  local start, last = string.find(its_record, ' wanted=%d+', INBOX_AT)
  local known_end = start and tonumber(string.sub(its_record, start + 8, last)) or math.huge
  local its_end = math.min(known_end, now + grace_ms * 1000)
  if its_end <= now then
    redis.call('HSET', state, 'last', struct.pack('<d', now) .. 'preempt ' .. by .. ' ' .. reason)
    revoke(its_token, its_record, 'a later request preempted it: ' .. reason)
    return nil
  end
  first_end = math.min(first_end, its_end)
  -- The holder counts from its grant as well, since a message takes time: it must not rely on its lease for longer.
  local granted = struct.unpack('<d', its_record)
  local held_ms = math.floor((its_end - (granted <= now and granted or 0)) / 1000) -- unless the clock was set back
  local times = string.format('%.0f %.0f', math.ceil((its_end - now) / 1000), held_ms)
  local message = table.concat({'wanted', its_token, times, by, reason}, ' ')
  redis.call('PUBLISH', string.match(its_record, '^%S+ (%S+)', INBOX_AT), message)
  if its_end < known_end then
    local words = start and string.sub(its_record, 1, start - 1) .. string.sub(its_record, last + 1) or its_record
    return words .. string.format(' wanted=%.0f', its_end)
  end
end

if grace_ms >= 0 then
  local inline = lease_end > 0 and ask(holder, record)
  if inline then
    record = inline
    save()
  end
  local others = {}
  if out > 0 then
    others = redis.call('ZRANGEBYSCORE', tokens, string.format('(%.0f', now), FINISHED, 'LIMIT', 0, MAX_ASKED)
  end
  for _, other in ipairs(others) do
    local its_record = ask(other, redis.call('HGET', state, other))
    if its_record then
      save(other, its_record)
    end
  end
end
local more = hand_over()
if #dismissed == MAX_DISMISSED then
  more = 1
end
return 'asked ' .. struct.pack('<dd', first_end < math.huge and first_end - now or -1, more)
