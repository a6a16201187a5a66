-- once_record: record how far a run has come, while it still holds the key; at its end, let the waiters find it.
--
-- KEYS state tokens result
-- ARGV token outcome numbers fingerprint value
-- PACK numbers <ddd keep_ms copies pause_ms
-- REPLY recorded more
-- REPLY lost
-- ALONE recorded 0
--
-- outcome is a state of lib/outcome.lua, or `dropped`, which records nothing. `begun` leaves the run as it is; the
-- others end it, and no waiter is granted, but for `dropped` without an earlier result. All but `done` and `begun` leave
-- what an earlier run has done as it is, and no one makes it anew within pause_ms. keep_ms is how long the record lasts;
-- copies is 1 if the acquire was sent more than once. more is 1 when there are waiters left to wake: send it again.
--
-- TWICE the same answer while its record is there, since that has the token; then `lost`, as where an earlier record was
--   left as it is.
-- LATE a run that lost its lease records nothing, and gets `lost`, also where no other one runs. At its end it gives up
--   what is left of that, and its place in the queue of an older state of the server; with copies it gets a tombstone.
-- MEMORY the first write is one that passes, or a HSET that is repeated behind one: what was done is remembered.

-- @include clock
-- @include record
-- @include state
-- @include queue
-- @include memory
-- @include grant
-- @include tombstones
-- @include sweep
-- @include handoff
-- @include outcome

local token, outcome, fingerprint, value = ARGV[1], ARGV[2], ARGV[4], ARGV[5]
local keep_ms, copies, pause_ms = struct.unpack('<ddd', ARGV[3])

load_name(KEYS[1], KEYS[2], redis.call('HGET', KEYS[1], 's'))
gives_back = true
local its_end, its_record = lease_of(token)
local stored = redis.call('GET', KEYS[3])
local earlier = stored and read_outcome(stored)
local holds, ends = its_record and its_end > now, outcome ~= 'begun'
if holds then
  allow_at_maxmemory()
  if ends and outcome ~= 'done' and earlier and earlier.state == 'done' then
    -- @include pause
    pause(earlier, pause_ms)
  elseif outcome ~= 'dropped' then
    local text = struct.pack('<dd', now, (struct.unpack('<d', its_record))) -- a number, and not also where it ends
    text = text .. struct.pack('Bc0Bc0Bc0', #outcome, outcome, #token, token, #fingerprint, fingerprint)
    redis.call('SET', KEYS[3], text .. value, 'PX', string.format('%.0f', keep_ms))
  end
end
local is_mine = earlier and earlier.token == token
local has_recorded = is_mine and (earlier.state ~= 'begun' or outcome == 'begun')
local is_lost = not holds and not has_recorded
if ends then
  if not drop_lease(token) and ticket_of(token) then
    leave_queue(token)
  end
  if copies == 1 and not finished(token) then
    add_tombstone(token, is_lost)
  end
end
if is_lost then
  if changed then
    save()
  end
  return 'lost '
elseif outcome == 'begun' then
  return 'recorded ' .. struct.pack('<d', 0)
elseif outcome == 'dropped' and not earlier then
  sweep()
  hand_over() -- of more than 100 that are gone, the next one that asks goes on
  return 'recorded ' .. struct.pack('<d', 0)
end
return 'recorded ' .. struct.pack('<d', dismiss())
