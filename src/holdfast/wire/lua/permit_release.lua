-- permit_release: give a lease up and hand its permits to the head of the line.
--
-- KEYS holders queue tokens past last_fence
-- ARGV token limit
-- REPLY released more
-- REPLY lost
--
-- more is 1 when 100 waiters were served or skipped and the line may go on: send it again.
--
-- TWICE still `released`: the token is found in `past`.
-- LATE a token that was never granted, or lost its lease before, changes nothing.
-- MEMORY the first write is a ZREM, which passes at maxmemory and lets the rest through.
local holders, queue, tokens, past, last_fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, limit = ARGV[1], tonumber(ARGV[2])
-- @include clock
-- @include keep
-- @include past
-- @include permits

local record, used = unpack(redis.call('HMGET', tokens, token, 'used'))
local deadline = tonumber(redis.call('ZSCORE', holders, token) or 0)
if deadline <= now and not redis.call('ZSCORE', past, token) then
  return {'lost'}
end

if redis.call('ZREM', holders, token) == 1 then
  bury(token)
  redis.call('HDEL', tokens, token)
  used = (tonumber(used) or limit) - (record and read_record(record) or 0)
end
local left = sweep(used)
if left > 0 then
  redis.call('HSET', tokens, 'used', left)
end
local more = hand_over(left)
return {'released', more}
