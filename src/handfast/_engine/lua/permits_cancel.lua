-- permits_cancel: undo an acquire of several locks, wherever it got to, and let their lines go on.
--
-- KEYS holders_queue_tokens_past...
-- ARGV token
-- REPLY cancelled more
--
-- Four keys a name.
-- more is 1 when 100 waiters were served or skipped in one line: it and those after it may go on, send
-- it again.
--
-- TWICE the second time there is nothing to take away.
-- LATE (or early) the token is buried in any case: an acquire that arrives after its cancel
--   finds itself in `past` and changes nothing.
-- MEMORY the first write is a ZREM, which passes at maxmemory and lets the rest through.
local token = ARGV[1]
-- @include clock
-- @include expiry

local more = 0
for k = 1, #KEYS, 4 do
  local holders, queue, tokens, past = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local record, stored, fence, resized = unpack(redis.call('HMGET', tokens, token, 'used', 'fence', 'limit'))
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
  more = more == 0 and hand_over() or more
end
return {'cancelled', more}
