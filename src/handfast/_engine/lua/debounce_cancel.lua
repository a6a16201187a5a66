-- debounce_cancel: withdraw a call. If it was the newest one, its burst ends without a run.
--
-- KEYS burst tombstones
-- ARGV token
-- REPLY cancelled more
-- ALONE cancelled 0
--
-- more is 0, as of every script that cancels and has nothing left to do.
--
-- TWICE the second time there is nothing to withdraw.
-- LATE (or early) the token is remembered in any case: a call that arrives after it changes nothing.
-- MEMORY the first write is a HDEL, which passes at maxmemory, and so does the rest.

-- @include clock

local burst, tombstones, token = KEYS[1], KEYS[2], ARGV[1]

-- @include burst
-- @include over

load_burst()
redis.call('HDEL', burst, '') -- changes nothing
remember(token)
if newest == token then
  forget_newest()
end
return 'cancelled ' .. struct.pack('<d', 0)
