-- election_watch: read who leads; if the caller knows that already, get a message when that may have changed.
--
-- KEYS state tokens watchers
-- ARGV token interest wants
-- PACK interest <dd known wait_ms
-- REPLY leads now_us ends_us grants waiting record
-- REPLY vacant now_us grants waiting
-- REPLY waits left_us
-- ALONE vacant now_us 0 0
--
-- known is the fence of the leader that the caller knows: 0 if the caller knows that there is no leader, -1 if it knows
--   nothing. wait_ms is how long the caller waits for the message; 0 only looks. wants is the owner text: inbox control
--   label.
-- waits is the answer if nothing has changed. left_us is the time until the end of the leader's lease, unless it is
--   renewed; 0 if there is no leader. The end of a lease sends no message, so the caller asks again then.
-- waiting counts the candidates, among them dead ones whose wait-lease lasts. record is that of lib/record.lua.
--
-- TWICE the same answer, and a single message.
-- LATE a message for a caller that has gone.
-- MEMORY the first write is a ZADD, refused at maxmemory; a call with wait_ms 0 passes, and so does a call with news.

-- @include clock
-- @include record
-- @include state

local watchers = KEYS[3]
local known, wait_ms = struct.unpack('<dd', ARGV[2])

-- @include inbox
-- @include watchers

load_name(KEYS[1], KEYS[2], redis.call('HGET', KEYS[1], 's'))
local leads = lease_end > now
if known == (leads and struct.unpack('<d', record) or 0) then
  if wait_ms > 0 then
    watch(ARGV[1], string.match(ARGV[3], '^%S+'), wait_ms)
  end
  return 'waits ' .. struct.pack('<d', leads and lease_end - now or 0)
end
if leads then
  return {'leads', now, lease_end, grants, length, record}
end
return 'vacant ' .. struct.pack('<ddd', now, grants, length)
