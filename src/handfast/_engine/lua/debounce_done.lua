-- debounce_done: end a run whose items are done.
--
-- KEYS items queue tombstones
-- ARGV token ending
-- PACK ending <d until_us
-- REPLY done
-- ALONE done
--
-- until_us is as debounce_take has replied. Items that another run has by now stay as they are. Those that are not done
--   go back with debounce_cancel.
--
-- TWICE the second time it finds none.
-- LATE as in time: no other run has that until_us.
-- MEMORY the first write is a ZREM, which passes at maxmemory, and so does the rest.

-- @include clock

local items, queue, tombstones, token = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local until_us = struct.unpack('<d', ARGV[2])

-- @include over

redis.call('ZREM', queue, '!' .. token)
remember(token)
local tokens = redis.call('ZRANGEBYSCORE', queue, until_us, until_us)
if tokens[1] then
  redis.call('HDEL', items, unpack(tokens))
  redis.call('ZREM', queue, unpack(tokens))
end
return 'done '
