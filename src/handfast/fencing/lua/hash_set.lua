-- hash_set: write fields of a hash unless a newer fence has been there.
--
-- KEYS hash guard
-- ARGV fence guard_ttl_ms fields_and_values...
-- REPLY - OK when they are written; the error STALEFENCE when not
--
-- TWICE the same: a fence passes again.
-- LATE refused once a newer fence has been there; before that they are written again, over what their holder wrote since.
-- MEMORY the first write is a SET, which is refused, and nothing has changed.
local hash, guard = KEYS[1], KEYS[2]
local fence, guard_ttl_ms = ARGV[1], tonumber(ARGV[2])

local latest = redis.call('GET', guard)
if latest and not (tonumber(latest) and tonumber(latest) <= tonumber(fence)) then
  return redis.error_reply('STALEFENCE ' .. fence .. ' is older than ' .. latest)
end
redis.call('HLEN', hash) -- a key of another type fails here, before anything is written
if guard_ttl_ms > 0 then
  redis.call('SET', guard, fence, 'PX', guard_ttl_ms)
else
  redis.call('SET', guard, fence)
end
-- In portions, since unpack takes some thousands at most.
for first = 3, #ARGV, 1000 do
  redis.call('HSET', hash, unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
return redis.status_reply('OK')
