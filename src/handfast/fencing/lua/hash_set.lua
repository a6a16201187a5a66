-- hash_set: write fields of a hash, unless the guard has a newer fence.
--
-- KEYS hash guard
-- ARGV fence guard_ttl_ms fields_and_values...
-- REPLY - OK if they are written; the error STALEFENCE if not
--
-- TWICE the same reply: an equal fence passes.
-- LATE refused after a newer fence; before that it overwrites what the same holder wrote since.
-- MEMORY the first write, a SET, is refused; nothing has changed.
local hash, guard = KEYS[1], KEYS[2]
local fence, guard_ttl_ms = ARGV[1], tonumber(ARGV[2])

local latest = redis.call('GET', guard)
if latest and not (tonumber(latest) and tonumber(latest) <= tonumber(fence)) then
  return redis.error_reply('STALEFENCE ' .. fence .. ' is older than ' .. latest)
end
redis.call('HLEN', hash) -- a key of another type fails here, before the first write
if guard_ttl_ms > 0 then
  redis.call('SET', guard, fence, 'PX', guard_ttl_ms)
else
  redis.call('SET', guard, fence)
end
-- In chunks: unpack is limited to some thousands of values.
for first = 3, #ARGV, 1000 do
  redis.call('HSET', hash, unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
return redis.status_reply('OK')
