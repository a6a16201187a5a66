-- burst: calls of one name that follow each other, of which the newest one is to run.
--
-- USES burst
-- GIVES first due newest inbox load_burst
--
-- The hash `burst` has these fields, of which the first four are there while a call waits:
--
--   first   when the first call of the burst came
--   due     when the newest one is to run
--   token   of the newest one
--   inbox   where it gets its message
--   ran     the token of the last call that ran, for a minute
--
-- Times are in microseconds. Calls that are over are remembered as lib/over.lua says; a `!` stands before those that ran.

local first, due, newest, inbox

local function load_burst()
  first, due, newest, inbox = unpack(redis.call('HMGET', burst, 'first', 'due', 'token', 'inbox'))
  first, due = tonumber(first), tonumber(due)
end
