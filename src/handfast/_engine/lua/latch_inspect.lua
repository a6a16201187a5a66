-- latch_inspect: list the parts that are done, and count who waits. Changes nothing.
--
-- KEYS parts watchers
-- ARGV shown
-- REPLY state done waiting parts_done
--
-- parts_done lists the first of them, at most as many as shown says.
--
-- TWICE, LATE and MEMORY it only reads.

-- @include clock

local parts, watchers = KEYS[1], KEYS[2]
local shown = tonumber(ARGV[1])
local waiting = redis.call('ZCOUNT', watchers, now, '+inf')
return {'state', redis.call('ZCARD', parts), waiting, redis.call('ZRANGE', parts, 0, shown - 1)}
