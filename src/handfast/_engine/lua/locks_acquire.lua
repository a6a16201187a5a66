-- locks_acquire: acquire those of many locks that are plainly free.
--
-- KEYS state...
-- ARGV callers ttl_ms wants
-- REPLY - a double for each name: its fence if it was granted for ttl_ms from now, else 0
--
-- callers has for each name a byte for the length of its token, the token, and the number of its caller as a double.
-- wants is that of permit_acquire without a caller.
--
-- A lock is plainly free if it has neither holder nor waiters nor the field `q`, and a TTL that is long enough. It gets
-- what permit_acquire writes. For any other name this script changes nothing, and the client sends permit_acquire. The
-- names have nothing to do with each other: any part of them may have been granted.
-- The short way of permit_acquire is not this one, since that one also takes names with the field `q`.
--
-- TWICE a name that was granted is not free, so it is 0. permit_acquire finds the grant by its token.
-- LATE after its cancel, or after a release that knows of copies, the token has a tombstone: so the name has the field
--   `q`, and nothing changes. A client whose batch had no reply counts it as a copy of the acquire of each name.
-- MEMORY the first write is one that is refused at maxmemory.

-- @include clock

local callers, ttl_ms, wants = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local permits, owner, its_end = string.sub(wants, 1, CALLER_IN_WANTS - 1), string.sub(wants, CALLER_IN_WANTS), now + ttl_ms * 1000
local least = its_end + HOUR_US + WAIT_US -- an hour, as for a waiter
local fences, at = {}, 1
for k = 1, #KEYS do
  local text, its_fence = redis.call('HGET', KEYS[k], 's'), 0
  local caller = at + 1 + string.byte(callers, at)
  if text and #text >= HOLDER_AT then
    local lease_end, fence, keep, extra, grants, waited, waiting, length = struct.unpack('<dddddddd', text)
    if lease_end <= now and length == 0 and extra == 0 and keep > least then
      its_fence = fence < now and now or fence + 1
      text = struct.pack('<dddddddd', its_end, its_fence, keep, 0, grants + 1, waited, waiting, 0)
      local its_record = struct.pack('<d', its_fence) .. permits .. string.sub(callers, caller, caller + 7) .. owner
      redis.call('HSET', KEYS[k], 's', text .. string.sub(callers, at, caller - 1) .. its_record)
    end
  end
  fences[k], at = its_fence, caller + 8
end
return struct.pack('<' .. string.rep('d', #KEYS), unpack(fences))
