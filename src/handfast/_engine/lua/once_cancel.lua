-- once_cancel: undo an acquire of a key, whatever it has reached, and let the waiters go on.
--
-- KEYS state tokens result
-- ARGV token
-- REPLY cancelled more
-- ALONE cancelled 0
--
-- It is sent only for a run that its caller never got. So what was recorded of it as `begun` never ran, and goes.
-- more is as in permit_cancel.
--
-- TWICE the second time there is nothing to take away.
-- LATE (or early) the token gets a tombstone in any case: an acquire that arrives after its cancel finds it and
--   changes nothing; and a record finds no lease.
-- MEMORY the first write is one that passes at maxmemory, or a HSET that is repeated behind one.

-- @include clock
-- @include record
-- @include state
-- @include grant
-- @include memory
-- @include tombstones
-- @include sweep
-- @include queue
-- @include handoff
-- @include outcome

local token = ARGV[1]
gives_back = true
load_name(KEYS[1], KEYS[2], redis.call('HGET', KEYS[1], 's'))
local stored = redis.call('GET', KEYS[3])
local outcome = stored and read_outcome(stored)
if outcome and outcome.state == 'begun' and outcome.token == token then
  redis.call('DEL', KEYS[3])
end
if not drop_lease(token) and ticket_of(token) then
  leave_queue(token)
end
add_tombstone(token)
sweep()
return 'cancelled ' .. struct.pack('<d', (hand_over()))
