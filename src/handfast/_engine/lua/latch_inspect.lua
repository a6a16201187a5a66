-- latch_inspect: list the parts done, and count the watchers. Changes nothing.
--
-- KEYS parts watchers
-- ARGV shown
-- REPLY state done waiting parts_done
--
-- parts_done lists at most `shown` parts, in the order in which they were done.
--
-- TWICE, LATE and MEMORY it only reads.

-- @include clock

local parts, watchers = KEYS[1], KEYS[2]
local shown = tonumber(ARGV[1])
local waiting = redis.call('ZCOUNT', watchers, now, '+inf')
return {'state', redis.call('ZCARD', parts), waiting, redis.call('ZRANGE', parts, 0, shown - 1)}
