-- debounce_enter: take a burst of calls over from the call before, or begin one; or ask again whether to run.
--
-- KEYS burst tombstones
-- ARGV token times wants
-- PACK times <dddd quiet_ms at_most_ms left_us ticket
-- REPLY waits now_us due_us ticket
-- REPLY runs
-- REPLY superseded
-- ALONE runs
--
-- at_most_ms may be infinite. left_us is the time that the call still has to wait by the client's clock: `quiet_ms` at
--   first, and below zero after the time of the call.
-- ticket is 0 at first, and then that of the first reply `waits`. With it, a call that comes back never takes over
--   from one that came later. Where the server has lost the burst, the call goes on with the time that is left; but
--   not an hour after its time, when newer calls may have run and be forgotten.
-- wants is who calls: inbox control label.
-- due_us is when it is to run: quiet_ms after now, but at most at_most_ms after the first call of the burst. A call that
--   comes later than that runs at once. So does a call whose time has come when it asks.
-- The call before gets a message, if its inbox has a subscriber: it is superseded. If its time has come and its question
--   is on its way, its burst is over: it runs, and the new call begins a burst. If it has not asked within the claim
--   window, or has no subscriber, its process is frozen or dead: its burst ends without a run.
--
-- TWICE the same answer; from another connection, its messages go there. If a newer call has run meanwhile, it is
--   superseded.
-- LATE a call that was superseded, or cancelled, or that ran, changes nothing.
-- MEMORY the first write of a call that takes over is a ZADD or a HSET, which is refused at maxmemory. A call that is
--   there already begins with a HDEL, which passes, and so does the rest.

-- @include clock

local SECOND_US = 1000000
local burst, tombstones = KEYS[1], KEYS[2]
local token, its_inbox = ARGV[1], string.match(ARGV[3], '^%S+')
local quiet_ms, at_most_ms, left_us, ticket = struct.unpack('<dddd', ARGV[2])

-- @include burst
-- @include over
-- @include inbox

-- The newest call is forgotten last: until then, a script that was cut off and is sent again comes here once more.
local function run()
  redis.call('HSET', burst, 'ran', token, 'ran_ticket', string.format('%.0f', ticket))
  live_for(0)
  if newest == token then
    remember('!' .. token)
    forget_newest()
  end
  return 'runs '
end

-- End the burst of the newest call if its time has come.
local function end_burst()
  if due + CLAIM_US <= now or not has_subscriber(inbox) then
    first = nil -- no one runs: it is frozen or dead
  elseif first + at_most_ms * 1000 > now then
    first = nil
    remember('!' .. newest)
    newest = nil -- it runs when its question arrives, and gets no message
  end
end

local function take_over()
  if newest and due <= now then
    end_burst()
  end
  if newest then
    remember(newest)
  end
  ticket = ticket > 0 and ticket or math.max(now, came + 1)
  first = math.min(first or now, now) -- the clock may have been set back
  due = math.max(now, math.min(now + left_us, first + at_most_ms * 1000))
  local times = {'first', string.format('%.0f', first), 'due', string.format('%.0f', due)}
  redis.call('HSET', burst, 'token', token, 'inbox', its_inbox, 'came', string.format('%.0f', ticket), unpack(times))
  live_for(due - now)
  if newest and has_subscriber(inbox) then
    publish(newest, inbox, 0, 1)
  end
  newest = token
end

load_burst()
local is_over, runs = unpack(redis.call('ZMSCORE', tombstones, token, '!' .. token))
if runs and ticket == 0 then
  ticket = runs - REPEAT_MS * 1000 - 1 -- its first reply was lost: not before its ticket, and before the next one
end
if newest == token then
  redis.call('HDEL', burst, '') -- changes nothing, passes at maxmemory, and so does the rest
  ticket = came
  local latest = now + math.max(0, left_us) + math.min(quiet_ms * 1000, SECOND_US) -- also if the clock was set back
  if inbox ~= its_inbox or due > latest then
    due = math.min(due, latest)
    redis.call('HSET', burst, 'inbox', its_inbox, 'due', string.format('%.0f', due))
  end
  live_for(math.max(0, due - now)) -- a script that was cut off may have left it out
elseif ran == token then
  return 'runs '
elseif runs and ticket > ran_ticket then
  redis.call('HDEL', burst, '') -- as above
  return run()
elseif is_over or runs or ticket > 0 and (ticket <= came or came == 0 and left_us < -HOUR_US) then
  return 'superseded '
else
  take_over()
end
if due <= now then
  return run()
end
return 'waits ' .. struct.pack('<ddd', now, due, ticket)
