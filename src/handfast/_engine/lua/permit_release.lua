-- permit_release: release the permits of one or several names, and hand them to the waiters.
--
-- KEYS holders queue tokens tombstones more...
-- ARGV token
-- REPLY released more
-- REPLY lost
--
-- `more` are the keys of further names, four each. Of several names, those that the token still holds are released
-- even where another one was lost. more is 1 when 100 waiters of one name were served or skipped and its queue may go
-- on, and those of the names after it: send it again.
--
-- TWICE the same answer: the token has a tombstone.
-- LATE a token that lost its lease before gets a tombstone as lost: no copy of its acquire is granted any more, and
--   should an older state of the server have it in the queue, it leaves it, and the queue goes on.
-- MEMORY the first write is a ZREM, which passes at maxmemory and lets the rest through.

-- @include clock
-- @include tombstones

local token = ARGV[1]
local lost, busy = false, nil -- by its first key, how a name stands that the short way is not for
for k = 1, #KEYS, 4 do
  local holders, queue, tokens, tombstones = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local outcome = 'held'
  if redis.call('ZREM', holders, token) == 1 then
    add_tombstone(tombstones, token)
  else
    local finished = redis.call('ZSCORE', tombstones, token)
    if not finished then
      add_tombstone(tombstones, token, true)
      redis.call('HDEL', tokens, token)
    end
    outcome = finished and tonumber(finished) % 1 == 0 and 'released before' or 'lost'
    lost = lost or outcome == 'lost'
  end
  if outcome == 'held' and redis.call('EXISTS', holders, queue) == 0 then
    redis.call('HDEL', tokens, token, 'used') -- the short way: no other holder, and no queue
  else
    busy = busy or {}
    busy[k] = outcome
  end
end
if not busy then
  return {'released', 0}
end

-- Parts that the short way does without: their functions would cost a free lock a tenth more instructions.
-- @include memory
-- @include expiry
-- @include record
-- @include state
-- @include grant
-- @include sweep
-- @include queue

local more = 0
for k = 1, #KEYS, 4 do
  local holders, queue, tokens = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local outcome, s = busy[k], busy[k] and load_state(holders, queue, tokens, token)
  if outcome == 'held' then
    redis.call('HDEL', tokens, token)
    s.used = s.used - weight_of(s.record)
  end
  if s and (outcome ~= 'lost' or redis.call('ZREM', queue, token) == 1) then
    if s.used > 0 then
      settle(s)
      sweep(s)
    end
    more = more == 0 and hand_over(s) or more
  end
end
if lost then
  return {'lost'}
end
return {'released', more}
