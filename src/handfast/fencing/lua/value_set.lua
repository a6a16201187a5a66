-- value_set: write a value, unless the guard has a newer fence.
--
-- KEYS value guard
-- ARGV data fence ttl_ms guard_ttl_ms
-- REPLY - OK if it is written; the error STALEFENCE if not, so that a pipeline raises it too
--
-- A TTL of 0 means none. Fences are stored and replied as the strings that were passed: Lua's tostring has 14 digits.
--
-- TWICE the same reply: an equal fence passes.
-- LATE refused after a newer fence; before that it overwrites what the same holder wrote since.
-- MEMORY the first write, a SET, is refused; nothing has changed.
local value, guard = KEYS[1], KEYS[2]
local data, fence = ARGV[1], ARGV[2]
local ttl_ms, guard_ttl_ms = tonumber(ARGV[3]), tonumber(ARGV[4])

-- A guard that is not a number refuses every fence.
local latest = redis.call('GET', guard)
if latest and not (tonumber(latest) and tonumber(latest) <= tonumber(fence)) then
  return redis.error_reply('STALEFENCE ' .. fence .. ' is older than ' .. latest)
end
-- The guard first: if the rest fails, older fences are refused and this one can be sent again.
if guard_ttl_ms > 0 then
  redis.call('SET', guard, fence, 'PX', guard_ttl_ms)
else
  redis.call('SET', guard, fence)
end
if ttl_ms > 0 then
  return redis.call('SET', value, data, 'PX', ttl_ms)
end
return redis.call('SET', value, data)
