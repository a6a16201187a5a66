-- permit_release: give a lease up and hand its permits to the head of the line.
--
-- KEYS holders queue tokens past
-- ARGV token
-- REPLY released more
-- REPLY lost
--
-- more is 1 when 100 waiters were served or skipped and the line may go on: send it again.
--
-- TWICE the same answer: the token is found in `past`.
-- LATE a token that lost its lease before is buried as lost: no copy of its acquire is granted any more, and
--   should an older state of the server have it in line, it leaves it, and the line goes on.
-- MEMORY the first write is a ZREM, which passes at maxmemory and lets the rest through.
local holders, queue, tokens, past = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token = ARGV[1]
local record, stored, fence, resized = unpack(redis.call('HMGET', tokens, token, 'used', 'fence', 'limit'))
local held = redis.call('ZREM', holders, token) == 1
-- @include clock
-- @include tombstones

local lost = false
if not held then
  local buried = redis.call('ZSCORE', past, token)
  if not buried then
    bury(token, true)
    redis.call('HDEL', tokens, token)
  end
  lost = not buried or tonumber(buried) % 1 > 0
  if lost and redis.call('ZREM', queue, token) == 0 then
    return {'lost'}
  end
else
  bury(token)
  if redis.call('EXISTS', holders, queue) == 0 then
    redis.call('HDEL', tokens, token, 'used')
    return {'released', 0} -- the short way: nobody else holds anything, and nobody waits
  end
  redis.call('HDEL', tokens, token)
end
-- @include expiry
-- @include grant
-- @include queue

if held then
  used = used - (record and tonumber(string.match(record, '^%d+')) or 0)
end
if used > 0 then
  settle()
  sweep()
end
local more = hand_over()
return lost and {'lost'} or {'released', more}
