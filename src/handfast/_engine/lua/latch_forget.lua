-- latch_forget: forget which parts are done, if no other part was done since they were shown.
--
-- KEYS parts
-- ARGV version
-- PACK version <dd done changed_us
-- REPLY forgotten
-- REPLY changed
--
-- done and changed_us are as latch_inspect has replied.
--
-- TWICE the second time the reply is `changed`: no part is done, or parts were done since. A caller whose reply was lost reads
--   which.
-- LATE parts that were done since stay.
-- MEMORY the only write is a DEL, which passes at maxmemory.
-- CUT there is nothing behind the only write; a user who lacks a right is refused before it.

local done, changed_us = struct.unpack('<dd', ARGV[1])
local newest = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
if not newest or redis.call('ZCARD', KEYS[1]) ~= done or tonumber(newest) ~= changed_us then
  return 'changed '
end
redis.call('DEL', KEYS[1])
return 'forgotten '
