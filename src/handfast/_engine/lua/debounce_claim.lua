-- debounce_claim: ask whether a call is to run now, when its time has come.
--
-- KEYS burst tombstones
-- ARGV token
-- REPLY runs
-- REPLY waits now_us due_us
-- REPLY superseded
--
-- Where the server has lost the burst, the call runs: it has waited as long as it had to.
--
-- TWICE a call that runs gets the same answer.
-- LATE it changes nothing: by then the call is over.
-- MEMORY the first write is a HDEL, which passes at maxmemory, and so does the rest.

-- @include clock

local burst, tombstones, token = KEYS[1], KEYS[2], ARGV[1]

-- @include burst
-- @include over

load_burst()
if newest == token and due > now then
  return 'waits ' .. struct.pack('<dd', now, due)
end
local ran = redis.call('HGET', burst, 'ran')
if ran == token or redis.call('ZSCORE', tombstones, '!' .. token) then
  return 'runs '
elseif newest ~= token and (newest or ran or redis.call('ZSCORE', tombstones, token)) then
  return 'superseded '
end
redis.call('HDEL', burst, 'first', 'due', 'token', 'inbox')
redis.call('HSET', burst, 'ran', token) -- whose message was lost, and comes now, finds it
redis.call('PEXPIRE', burst, GRACE_MS)
remember('!' .. token)
return 'runs '
