-- permit_resize: set how many permits a name has, whatever its clients ask for, and grant those who fit now.
--
-- KEYS state tokens
-- ARGV limit by
-- REPLY resized more
-- ALONE resized 0
--
-- limit 0 removes what was set before: each request brings its own limit again. by is the label of the operator's
-- client, percent-encoded: what was done is noted with it, see lib/state.lua.
-- more is 1 when 100 waiters were served or skipped and the queue may go on: send it again.
--
-- TWICE the limit is set, never added to.
-- LATE it overrides one that was set in between: the last to arrive counts.
-- MEMORY the first write is a HSET, which is refused at maxmemory; removing passes.
-- CUT a user who lacks a right is refused before the first write, see lib/rights.lua. Cut off behind the first write, the
--   limit counts, without the note behind that, and the queue is not served until the next call of the name.

-- @include clock
-- @include record
-- @include state
-- @include grant
-- @include memory
-- @include sweep
-- @include queue
-- @include handoff
-- @include permit_rights

load_name(KEYS[1], KEYS[2], redis.call('HGET', KEYS[1], 's'))
require_act_rights()
set_limit = tonumber(ARGV[1])
gives_back = set_limit == 0
live_for(0)
save()
redis.call('HSET', state, 'last', struct.pack('<d', now) .. 'resize ' .. ARGV[2] .. ' ' .. ARGV[1])
sweep()
return 'resized ' .. struct.pack('<d', (hand_over()))
