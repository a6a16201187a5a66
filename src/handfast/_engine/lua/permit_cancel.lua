-- permit_cancel: undo an acquire, wherever it got to, and let the line go on.
--
-- KEYS holders queue tokens past
-- ARGV token
-- REPLY cancelled more
--
-- more is 1 when 100 waiters were served or skipped and the line may go on: send it again.
--
-- TWICE the second time there is nothing to take away.
-- LATE (or early) the token is buried in any case: an acquire that arrives after its cancel
--   finds itself in `past` and changes nothing.
-- MEMORY the first write is a ZREM, which passes at maxmemory and lets the rest through.
local holders, queue, tokens, past = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token = ARGV[1]
local record, stored, fence, resized = unpack(redis.call('HMGET', tokens, token, 'used', 'fence', 'limit'))
-- @include clock
-- @include expiry
-- @include tombstones
-- @include grant
-- @include queue

redis.call('ZREM', queue, token)
if redis.call('ZREM', holders, token) == 1 then
  used = used - (record and read_record(record) or 0)
  settle()
end
bury(token)
redis.call('HDEL', tokens, token)
sweep()
local more = hand_over()
return {'cancelled', more}
