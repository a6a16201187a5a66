-- permit_cancel: undo an acquire of one or several names, whatever it has reached, and let the waiters go on.
--
-- KEYS state tokens more...
-- ARGV token
-- REPLY cancelled more
-- ALONE cancelled 0
--
-- `more` are the keys of further names, two each. more is 1 when 100 waiters of one name were served or skipped and
-- its queue may go on, and those of the names after it: send it again.
--
-- TWICE the second time there is nothing to take away.
-- LATE (or early) the token gets a tombstone in any case: an acquire that arrives after its cancel finds it and
--   changes nothing.
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

local token, more = ARGV[1], 0
gives_back = true
for k = 1, #KEYS, 2 do
  load_name(KEYS[k], KEYS[k + 1], redis.call('HGET', KEYS[k], 's'))
  if not drop_lease(token) and ticket_of(token) then
    leave_queue(token)
  end
  add_tombstone(token)
  sweep()
  more = more == 0 and hand_over() or more
end
return 'cancelled ' .. struct.pack('<d', more)
