-- permits_release: give several locks up, and hand each to the head of its line.
--
-- KEYS holders_queue_tokens_past...
-- ARGV token
-- REPLY released more
-- REPLY lost
--
-- Four keys a name. Those that it still had are given up even where another one was lost.
-- more is 1 when 100 waiters were served or skipped in one line: it and those after it may go on, send
-- it again.
--
-- TWICE the same answer: the token is found in `past`.
-- LATE a token that lost its lease before is buried as lost: no copy of its acquire is granted any more, and
--   should an older state of the server have it in line, it leaves it, and the line goes on.
-- MEMORY the first write is a ZREM, which passes at maxmemory and lets the rest through.
local token = ARGV[1]
-- @include clock
-- @include expiry

local lost, more = false, 0
for k = 1, #KEYS, 4 do
  local holders, queue, tokens, past = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local record, stored, fence, resized = unpack(redis.call('HMGET', tokens, token, 'used', 'fence', 'limit'))
  -- @include tombstones
  -- @include grant
  -- @include queue

  local held = redis.call('ZREM', holders, token) == 1
  if held then
    bury(token)
    redis.call('HDEL', tokens, token)
    used = used - (record and read_record(record) or 0)
    settle()
  end
  local buried = held and '0' or redis.call('ZSCORE', past, token)
  if not buried then
    bury(token, true)
    redis.call('HDEL', tokens, token)
  end
  local is_lost = not buried or tonumber(buried) % 1 > 0
  lost = lost or is_lost
  if not is_lost or redis.call('ZREM', queue, token) == 1 then
    sweep()
    more = more == 0 and hand_over() or more
  end
end
if lost then
  return {'lost'}
end
return {'released', more}
