-- permit_lower: keep only some of the permits of a lease, and hand the others to the waiters.
--
-- KEYS holders queue tokens
-- ARGV token weight
-- REPLY lowered more
-- REPLY lost
--
-- The lease goes on with its fence and its deadline, and no other request gets in between.
-- more is 1 when 100 waiters were served or skipped and the queue may go on: send it again.
--
-- TWICE the weight is set, never subtracted; a larger one than the lease has changes nothing.
-- LATE after a release it finds no holder and changes nothing.
-- MEMORY the first write is a ZREM that removes nothing: it passes at maxmemory, and so does the rest.

-- @include clock
-- @include memory
-- @include expiry
-- @include record
-- @include state
-- @include grant
-- @include sweep
-- @include queue

local holders, queue, tokens = KEYS[1], KEYS[2], KEYS[3]
local token, weight = ARGV[1], tonumber(ARGV[2])
local s = load_state(holders, queue, tokens, token)
local held = read_record(s.record)
local deadline = tonumber(redis.call('ZSCORE', holders, token) or 0)
if not held or deadline <= now then
  return {'lost'}
end
allow_at_maxmemory(holders)
if weight < held.weight then
  s.used = s.used - (held.weight - weight)
  local fence = string.format('%.0f', held.fence)
  local record = write_record(weight, held.limit, held.claim_ms, held.wait_until, fence, held.since, held.owner)
  redis.call('HSET', tokens, token, record)
  settle(s)
end
sweep(s)
local more = hand_over(s)
return {'lowered', more}
