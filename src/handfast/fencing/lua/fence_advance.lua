-- fence_advance: remember a fence, and write nothing else, unless the guard has a newer one.
--
-- KEYS guard
-- ARGV fence guard_ttl_ms
-- REPLY - OK if older fences are refused from now on; the error STALEFENCE if this one is older
--
-- TWICE the same reply: an equal fence passes.
-- LATE refused after a newer fence; before that it changes only the TTL of the guard.
-- MEMORY the first write, a SET, is refused; nothing has changed.
local guard, fence, guard_ttl_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])

local latest = redis.call('GET', guard)
if latest and not (tonumber(latest) and tonumber(latest) <= tonumber(fence)) then
  return redis.error_reply('STALEFENCE ' .. fence .. ' is older than ' .. latest)
end
if guard_ttl_ms > 0 then
  return redis.call('SET', guard, fence, 'PX', guard_ttl_ms)
end
return redis.call('SET', guard, fence)
