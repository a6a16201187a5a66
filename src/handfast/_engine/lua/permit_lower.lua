-- permit_lower: keep only so many permits of a lease, and hand the others to the line.
--
-- KEYS holders queue tokens
-- ARGV token weight
-- REPLY lowered more
-- REPLY lost
--
-- The lease goes on as it was, with its fence and its deadline, and nobody gets in between.
-- more is 1 when 100 waiters were served or skipped and the line may go on: send it again.
--
-- TWICE the weight is set, never taken off; a larger one than the lease has changes nothing.
-- LATE after a release it finds no holder and changes nothing.
-- MEMORY the first write is a ZREM that removes nothing: it passes at maxmemory, and so does the rest.
local holders, queue, tokens = KEYS[1], KEYS[2], KEYS[3]
local token, weight = ARGV[1], tonumber(ARGV[2])
local known, stored, fence, resized = unpack(redis.call('HMGET', tokens, token, 'used', 'fence', 'limit'))
-- @include clock
-- @include expiry
-- @include grant
-- @include queue

local held, limit, claim_ms, wait_until, granted, since, who = read_record(known or '')
local deadline = tonumber(redis.call('ZSCORE', holders, token) or 0)
if not held or deadline <= now then
  return {'lost'}
end
redis.call('ZREM', holders, '')
if weight < held then
  used = used - (held - weight)
  local record = write_record(weight, limit, claim_ms, wait_until, string.format('%.0f', granted), since, who)
  redis.call('HSET', tokens, token, record)
  settle()
end
sweep()
local more = hand_over()
return {'lowered', more}
