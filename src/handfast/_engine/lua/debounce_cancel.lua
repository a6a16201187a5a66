-- debounce_cancel: withdraw a call. If it was the newest one, its burst ends without a run. Items that it has taken go to
-- the next run.
--
-- KEYS burst items queue tombstones
-- ARGV token
-- REPLY cancelled more
-- ALONE cancelled 0
--
-- more is 0, as of every script that cancels and has nothing left to do.
--
-- TWICE the second time there is nothing to withdraw.
-- LATE (or early) the token is remembered in any case: a call that arrives after it changes nothing, and takes no items.
-- MEMORY the first write is a HDEL, which passes at maxmemory, and so does the rest.

-- @include clock

local burst, items, queue, tombstones, token = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]

-- @include burst
-- @include items
-- @include over

load_burst()
redis.call('HDEL', burst, '') -- changes nothing
remember(token)
if newest == token then
  forget_newest()
end
local until_us = redis.call('ZSCORE', queue, '!' .. token)
if until_us then
  keep_items()
  local entries = {}
  for i, its_token in ipairs(redis.call('ZRANGEBYSCORE', queue, until_us, until_us)) do
    entries[2 * i - 1], entries[2 * i] = QUEUED + now, its_token
  end
  redis.call('ZADD', queue, unpack(entries))
  redis.call('ZREM', queue, '!' .. token)
end
return 'cancelled ' .. struct.pack('<d', 0)
