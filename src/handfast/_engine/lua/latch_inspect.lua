-- latch_inspect: list the parts done, and count the watchers. Changes nothing.
--
-- KEYS parts watchers
-- ARGV shown
-- REPLY state done waiting changed_us parts_done
--
-- parts_done lists at most `shown` parts, in the order in which they were done. changed_us is when the last one was done; 0
-- without parts.
--
-- TWICE, LATE and MEMORY it only reads.

-- @include clock

local parts, watchers = KEYS[1], KEYS[2]
local shown = tonumber(ARGV[1])
local waiting = redis.call('ZCOUNT', watchers, now, '+inf')
local newest = redis.call('ZRANGE', parts, -1, -1, 'WITHSCORES')[2]
local changed_us = tonumber(newest or 0)
return {'state', redis.call('ZCARD', parts), waiting, changed_us, redis.call('ZRANGE', parts, 0, shown - 1)}
