-- value_delete: delete a key, of whatever type, unless a newer fence has been there; the fence is remembered.
--
-- KEYS value guard
-- ARGV fence guard_ttl_ms
-- REPLY - OK when it is gone; the error STALEFENCE when a newer fence keeps it
--
-- TWICE the same: a fence passes again.
-- LATE refused once a newer fence has been there; before that it deletes what its holder wrote since.
-- MEMORY the first write is a PERSIST, which passes at maxmemory and lets the rest through.
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
