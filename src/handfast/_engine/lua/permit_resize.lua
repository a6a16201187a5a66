-- permit_resize: set how many permits a name has, whatever its clients ask for, and grant those who fit now.
--
-- KEYS holders queue tokens
-- ARGV limit
-- REPLY resized more
--
-- limit 0 removes what was set before: each request brings its own limit again.
-- more is 1 when 100 waiters were served or skipped and the queue may go on: send it again.
--
-- TWICE the limit is set, never added to.
-- LATE it overrides one that was set in between: the last to arrive counts.
-- MEMORY the first write is a HSET, which is refused at maxmemory; removing passes.

-- @include clock
-- @include memory
-- @include expiry
-- @include record
-- @include state
-- @include grant
-- @include sweep
-- @include queue

local holders, queue, tokens = KEYS[1], KEYS[2], KEYS[3]
local limit = tonumber(ARGV[1])
local s = load_state(holders, queue, tokens, '')
s.limit = limit > 0 and limit
if s.limit then
  redis.call('HSET', tokens, 'limit', s.limit)
  raise_ttl(tokens, tokens_grace_ms(s.limit))
else
  redis.call('HDEL', tokens, 'limit')
end
sweep(s)
local more = hand_over(s)
return {'resized', more}
