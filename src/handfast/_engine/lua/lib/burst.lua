-- burst: calls of one name that follow each other, of which the newest one is to run.
--
-- USES now burst tombstones
-- GIVES first due newest inbox load_burst end_call
--
-- The hash `burst` has these fields, of which the first four are there while a call waits:
--
--   first   when the first call of the burst came
--   due     when the newest one is to run
--   token   of the newest one
--   inbox   where it gets its message
--   ran     the token of the last call that ran, for a minute
--
-- Times are in microseconds. The sorted set `tombstones` has the tokens of calls that are over, for so long that no copy of
-- them arrives any more; a `!` stands before those that ran.

local first, due, newest, inbox

local function load_burst()
  first, due, newest, inbox = unpack(redis.call('HMGET', burst, 'first', 'due', 'token', 'inbox'))
  first, due = tonumber(first), tonumber(due)
end

-- Remember that a call is over: a copy of it that arrives late changes nothing.
local function end_call(mark, token)
  local MAX_DROPPED = 100 -- more than are added
  redis.call('ZADD', tombstones, now + REPEAT_MS * 1000, mark .. token)
  redis.call('PEXPIRE', tombstones, REPEAT_MS + GRACE_MS)
  local forgotten = redis.call('ZRANGEBYSCORE', tombstones, '-inf', now, 'LIMIT', 0, MAX_DROPPED)
  if forgotten[1] then
    redis.call('ZREM', tombstones, unpack(forgotten))
  end
end
