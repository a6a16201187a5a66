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
-- TWICE still `released`: the token is found in `past`.
-- LATE a token that was never granted, or lost its lease before, changes nothing.
-- MEMORY the first write is a ZREM, which passes at maxmemory and lets the rest through.
local token = ARGV[1]
-- @include clock
-- @include keep

local lost, more = false, 0
for k = 1, #KEYS, 4 do
  local holders, queue, tokens, past = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local record, stored, fence, resized = unpack(redis.call('HMGET', tokens, token, 'used', 'fence', 'limit'))
  -- @include past
  -- @include grant
  -- @include line

  local held = redis.call('ZREM', holders, token) == 1
  if held then
    bury(token)
    redis.call('HDEL', tokens, token)
    used = used - (record and read_record(record) or 0)
    settle()
  end
  if held or redis.call('ZSCORE', past, token) then
    sweep()
    more = more == 0 and hand_over() or more
  else
    lost = true
  end
end
if lost then
  return {'lost'}
end
return {'released', more}
