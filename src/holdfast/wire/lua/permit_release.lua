-- permit_release: give a lease up and hand its permits to the head of the line.
--
-- KEYS holders queue tokens past
-- ARGV token
-- REPLY released more
-- REPLY lost
--
-- more is 1 when 100 waiters were served or skipped and the line may go on: send it again.
--
-- TWICE still `released`: the token is found in `past`.
-- LATE a token that was never granted, or lost its lease before, changes nothing.
-- MEMORY the first write is a ZREM, which passes at maxmemory and lets the rest through.
local holders, queue, tokens, past = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token = ARGV[1]
local record, stored, fence, resized = unpack(redis.call('HMGET', tokens, token, 'used', 'fence', 'limit'))
local held = redis.call('ZREM', holders, token) == 1
if not held and not redis.call('ZSCORE', past, token) then
  return {'lost'}
end
-- @include clock
-- @include past

if held then
  bury(token)
  if redis.call('EXISTS', holders, queue) == 0 then
    redis.call('HDEL', tokens, token, 'used')
    return {'released', 0} -- the short way: nobody else holds anything, and nobody waits
  end
  redis.call('HDEL', tokens, token)
end
-- @include keep
-- @include grant
-- @include line

if held then
  used = used - (record and tonumber(string.match(record, '^%d+')) or 0)
end
if used > 0 then
  settle()
  sweep()
end
local more = hand_over()
return {'released', more}
