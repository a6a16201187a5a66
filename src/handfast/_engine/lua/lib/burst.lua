-- burst: calls of one name that follow each other, of which the newest one is to run.
--
-- USES burst
-- GIVES first due newest inbox came ran ran_ticket load_burst forget_newest live_for
--
-- The hash `burst` has these fields, of which the first four are there while a call waits:
--
--   first       when the first call of the burst came
--   due         when the newest call is to run
--   token       of the newest call
--   inbox       where the newest call gets its message
--   came        the ticket of the last call that came: its time, or one more than the ticket before
--   ran         the token of the newest call that ran
--   ran_ticket  its ticket
--
-- Times are in microseconds. In another layout `due` is the text `layout N`, see lib/state.lua. The hash outlives the
-- last call by an hour, so that a call which was away for long finds newer calls. lib/over.lua remembers calls that are
-- over: a `!` stands before the calls that run.

local first, due, newest, inbox, came, ran, ran_ticket

local function load_burst()
  local fields = {'first', 'due', 'token', 'inbox', 'came', 'ran', 'ran_ticket'}
  local due_at
  first, due_at, newest, inbox, came, ran, ran_ticket = unpack(redis.call('HMGET', burst, unpack(fields)))
  first, due, came, ran_ticket = tonumber(first), tonumber(due_at), tonumber(came) or 0, tonumber(ran_ticket) or 0
  if due_at and not due then
    error('stored in ' .. due_at)
  end
end

local function forget_newest()
  redis.call('HDEL', burst, 'first', 'due', 'token', 'inbox')
end

-- Invariant 5. A shorter time does not replace a longer one: an earlier call may wait that long.
local function live_for(us)
  local ms = math.ceil((us + HOUR_US) / 1000)
  if redis.call('PTTL', burst) < ms then
    redis.call('PEXPIRE', burst, ms)
  end
end
