-- fence_latest: read the newest fence.
--
-- KEYS guard
-- REPLY - its digits, or nil if there is none
--
-- TWICE reads again.
-- LATE the reply is ignored.
-- MEMORY writes nothing.
local guard = KEYS[1]

return redis.call('GET', guard)
