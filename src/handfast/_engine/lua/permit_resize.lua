-- permit_resize: set how many permits a name has, whatever its clients say, and let in who fits now.
--
-- KEYS holders queue tokens
-- ARGV limit
-- REPLY resized more
--
-- limit 0 forgets what was set before: each request counts by its own limit again.
-- more is 1 when 100 waiters were served or skipped and the line may go on: send it again.
--
-- TWICE the limit is set, never added to.
-- LATE it overrides one that was set meanwhile: the last to arrive counts.
-- MEMORY the first write is a HSET, which is refused at maxmemory; forgetting passes.
local holders, queue, tokens = KEYS[1], KEYS[2], KEYS[3]
local limit = tonumber(ARGV[1])
local stored, fence = unpack(redis.call('HMGET', tokens, 'used', 'fence'))
local resized = limit > 0 and limit
-- @include clock
-- @include expiry
-- @include grant
-- @include queue

if resized then
  redis.call('HSET', tokens, 'limit', resized)
  keep(tokens, memory)
else
  redis.call('HDEL', tokens, 'limit')
end
sweep()
local more = hand_over()
return {'resized', more}
