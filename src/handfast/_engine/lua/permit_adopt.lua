-- permit_adopt: note which client has a lease from now on: it is shown, and hears if the lease is taken away.
--
-- KEYS state tokens
-- ARGV token owner
-- REPLY adopted
-- REPLY lost
--
-- owner is the control channel and the label of that client, as lib/record.lua has them. The lease keeps its fence,
--   its deadline, its permits and what its record says else. The caller has renewed it before.
--
-- TWICE the same is noted.
-- LATE after another client has adopted the lease, the former one is shown and hears of a revocation, and the new
--   one learns of it at its next renewal. After a release it finds no holder and changes nothing.
-- MEMORY the first write is a HDEL that removes nothing: it passes at maxmemory, and so does the rest.

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
gives_back = true
local words = string.match(its_record, '^%S+ %S+ %S*(.*)', INBOX_AT)
its_record = string.sub(its_record, 1, INBOX_AT - 1) .. inbox_of(its_record) .. ' ' .. ARGV[2] .. words
if holder == token then
  record = its_record
  save()
else
  save(token, its_record)
end
return 'adopted '
