-- value_delete: delete a key of any type and remember the fence, unless the guard has a newer one.
--
-- KEYS value guard
-- ARGV fence guard_ttl_ms
-- REPLY - OK if the key is gone; the error STALEFENCE if not
--
-- TWICE the same reply: an equal fence passes.
-- LATE refused after a newer fence; before that it deletes what the same holder wrote since.
-- MEMORY the first write, a PERSIST, passes at maxmemory, and so do the writes after it.
local value, guard = KEYS[1], KEYS[2]
local fence, guard_ttl_ms = ARGV[1], tonumber(ARGV[2])

local latest = redis.call('GET', guard)
if latest and not (tonumber(latest) and tonumber(latest) <= tonumber(fence)) then
  return redis.error_reply('STALEFENCE ' .. fence .. ' is older than ' .. latest)
end
redis.call('PERSIST', guard)
if guard_ttl_ms > 0 then
  redis.call('SET', guard, fence, 'PX', guard_ttl_ms)
else
  redis.call('SET', guard, fence)
end
redis.call('UNLINK', value)
return redis.status_reply('OK')
