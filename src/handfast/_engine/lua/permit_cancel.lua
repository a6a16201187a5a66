-- permit_cancel: undo an acquire of one or several names, whatever it has reached, and let the waiters go on.
--
-- KEYS holders queue tokens tombstones more...
-- ARGV token
-- REPLY cancelled more
--
-- `more` are the keys of further names, four each. more is 1 when 100 waiters of one name were served or skipped and
-- its queue may go on, and those of the names after it: send it again.
--
-- TWICE the second time there is nothing to take away.
-- LATE (or early) the token gets a tombstone in any case: an acquire that arrives after its cancel finds it and
--   changes nothing.
-- MEMORY the first write is a ZREM, which passes at maxmemory and lets the rest through.

-- @include clock
-- @include memory
-- @include expiry
-- @include record
-- @include state
-- @include grant
-- @include tombstones
-- @include sweep
-- @include queue

local token = ARGV[1]
local more = 0
for k = 1, #KEYS, 4 do
  local holders, queue, tokens, tombstones = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local s = load_state(holders, queue, tokens, token)
  redis.call('ZREM', queue, token)
  if redis.call('ZREM', holders, token) == 1 then
    s.used = s.used - weight_of(s.record)
    settle(s)
  end
  add_tombstone(tombstones, token)
  redis.call('HDEL', tokens, token)
  sweep(s)
  more = more == 0 and hand_over(s) or more
end
return {'cancelled', more}
