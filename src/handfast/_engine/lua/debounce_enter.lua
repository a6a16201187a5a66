-- debounce_enter: take a burst of calls over from the call before, or begin one.
--
-- KEYS burst tombstones
-- ARGV token durations wants
-- REPLY waits now_us due_us
-- REPLY superseded
-- REPLY finished
--
-- durations is quiet_ms at_most_ms, packed as doubles; the latter may be infinite. wants is who calls: inbox control label.
-- due_us is when it is to run: quiet_ms after now, but at most at_most_ms after the first call of the burst.
-- The call before gets a message, if its inbox has a subscriber. It is superseded.
--
-- TWICE the newest call gets the time that it has; from another connection, its messages go there.
-- LATE a call that was superseded, or cancelled, or that ran (`finished`), changes nothing.
-- MEMORY the first write of a call that takes over is a HSET, which is refused at maxmemory.

-- @include clock

local burst, tombstones = KEYS[1], KEYS[2]
local token, its_inbox = ARGV[1], string.match(ARGV[3], '^%S+')
local quiet_ms, at_most_ms = struct.unpack('<dd', ARGV[2])

-- @include burst
-- @include over
-- @include inbox

load_burst()
if newest == token then
  if inbox ~= its_inbox then
    redis.call('HDEL', burst, '') -- changes nothing, passes at maxmemory, and so does the rest
    redis.call('HSET', burst, 'inbox', its_inbox)
  end
  return 'waits ' .. struct.pack('<dd', now, due)
elseif redis.call('ZSCORE', tombstones, '!' .. token) then
  return 'finished '
elseif redis.call('ZSCORE', tombstones, token) then
  return 'superseded '
end
first = first or now
due = math.max(now, math.min(now + quiet_ms * 1000, first + at_most_ms * 1000))
local times = {'first', string.format('%.0f', first), 'due', string.format('%.0f', due)}
redis.call('HSET', burst, 'token', token, 'inbox', its_inbox, unpack(times))
redis.call('PEXPIRE', burst, math.ceil((due - now) / 1000) + GRACE_MS)
if newest then
  remember(newest)
  if has_subscriber(inbox) then
    publish(newest, inbox, 0, 1)
  end
end
return 'waits ' .. struct.pack('<dd', now, due)
