-- value_set: write a value unless a newer fence has been there.
--
-- KEYS value guard
-- ARGV data fence ttl_ms guard_ttl_ms
-- REPLY - OK when it is written; the error STALEFENCE when not, so that a pipeline raises it too
--
-- A time of 0 is for ever. Fences are kept and answered as the text they came as: Lua's tostring has 14 digits.
--
-- TWICE the same: a fence passes again.
-- LATE refused once a newer fence has been there; before that it is written again, over what its holder wrote since.
-- MEMORY the first write is a SET, which is refused, and nothing has changed.
local value, guard = KEYS[1], KEYS[2]
local data, fence = ARGV[1], ARGV[2]
local ttl_ms, guard_ttl_ms = tonumber(ARGV[3]), tonumber(ARGV[4])

-- What is no number is not older: then nothing passes.
local latest = redis.call('GET', guard)
if latest and not (tonumber(latest) and tonumber(latest) <= tonumber(fence)) then
  return redis.error_reply('STALEFENCE ' .. fence .. ' is older than ' .. latest)
end
-- The guard first: should the rest fail, older fences are refused, and this one may come again.
if guard_ttl_ms > 0 then
  redis.call('SET', guard, fence, 'PX', guard_ttl_ms)
else
  redis.call('SET', guard, fence)
end
if ttl_ms > 0 then
  return redis.call('SET', value, data, 'PX', ttl_ms)
end
return redis.call('SET', value, data)
