-- permit_lower: keep only some of the permits of a lease, and hand the others to the waiters.
--
-- KEYS state tokens
-- ARGV token weight
-- REPLY lowered more
-- REPLY lost
-- ALONE lowered 0
--
-- The lease goes on with its fence and its deadline, and no other request gets in between.
-- more is 1 when 100 waiters were served or skipped and the queue may go on: send it again.
--
-- TWICE the weight is set, never subtracted; a larger one than the lease has changes nothing.
-- LATE after a release it finds no holder and changes nothing.
-- MEMORY the first write is a HDEL that removes nothing: it passes at maxmemory, and so does the rest.

-- @include clock
-- @include record
-- @include state
-- @include grant
-- @include memory
-- @include sweep
-- @include queue
-- @include handoff

local token, weight = ARGV[1], tonumber(ARGV[2])
load_name(KEYS[1], KEYS[2], redis.call('HGET', KEYS[1], 's'))
local its_end, its_record = lease_of(token)
if not its_record or its_end <= now then
  return 'lost '
end
allow_at_maxmemory()
gives_back = true
local held = weight_of(its_record)
if weight < held then
  its_record = string.sub(its_record, 1, WEIGHT_AT - 1) .. struct.pack('<d', weight) .. string.sub(its_record, LIMIT_AT)
  if holder == token then
    record = its_record
    save()
  else
    out = out - (held - weight)
    save(token, its_record)
  end
end
sweep()
return 'lowered ' .. struct.pack('<d', (hand_over()))
