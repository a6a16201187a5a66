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
-- TWICE the second time no part is done, and the reply is `changed`.
-- LATE parts that were done since stay.
-- MEMORY the only write is a DEL, which passes at maxmemory.

local done, changed_us = struct.unpack('<dd', ARGV[1])
local newest = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
if not newest or redis.call('ZCARD', KEYS[1]) ~= done or tonumber(newest) ~= changed_us then
  return 'changed '
end
redis.call('DEL', KEYS[1])
return 'forgotten '
