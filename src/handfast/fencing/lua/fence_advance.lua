-- fence_advance: remember a fence, and write nothing else, unless a newer one has been there.
--
-- KEYS guard
-- ARGV fence guard_ttl_ms
-- REPLY - OK when older fences are refused from now on; the error STALEFENCE when this one is older
--
-- TWICE the same: a fence passes again.
-- LATE refused once a newer fence has been there; before that it changes nothing but the guard's TTL.
-- MEMORY the first write is a SET, which is refused, and nothing has changed.
local guard, fence, guard_ttl_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])

local latest = redis.call('GET', guard)
if latest and not (tonumber(latest) and tonumber(latest) <= tonumber(fence)) then
  return redis.error_reply('STALEFENCE ' .. fence .. ' is older than ' .. latest)
end
if guard_ttl_ms > 0 then
  return redis.call('SET', guard, fence, 'PX', guard_ttl_ms)
end
return redis.call('SET', guard, fence)
