-- permit_adopt: note the client that has a lease from now on. A status shows this client, and a revocation reaches it.
--
-- KEYS state tokens
-- ARGV token owner
-- REPLY adopted held_us
-- REPLY lost
--
-- held_us is the time since the grant, by which the client counts when it is asked to end; -1 where the clock was set back.
-- owner is the control channel and the label of the client, as in lib/record.lua. The lease keeps the fence, the
--   deadline, the permits and all other words of the record. The caller has renewed the lease before.
--
-- TWICE the same is noted.
-- LATE after another client has adopted the lease, a status shows the former client and a revocation reaches it; the
--   new client notices a revocation at the next renewal. After a release the script finds no holder and changes nothing.
-- MEMORY the first write is a HDEL that removes nothing: it passes at maxmemory, and so does the rest.
-- CUT the client is noted by a single HSET: cut off before it, the lease is as it was, and behind it nothing is left to do.

-- @include clock
-- @include record
-- @include state
-- @include grant
-- @include memory

local token = ARGV[1]
load_name(KEYS[1], KEYS[2], redis.call('HGET', KEYS[1], 's'))
local its_end, its_record = lease_of(token)
if not its_record or its_end <= now then
  return 'lost '
end
allow_at_maxmemory()
local words = string.match(its_record, '^%S+ %S+ %S*(.*)', INBOX_AT)
its_record = string.sub(its_record, 1, INBOX_AT - 1) .. inbox_of(its_record) .. ' ' .. ARGV[2] .. words
if holder == token then
  record = its_record
  save()
else
  save(token, its_record)
end
local granted = struct.unpack('<d', its_record)
return 'adopted ' .. struct.pack('<d', granted <= now + 1000000 and math.max(0, now - granted) or -1)
