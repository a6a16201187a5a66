-- group_ring: send messages to those who wait for a change of the members.
--
-- KEYS watchers
-- REPLY told more
-- ALONE told 0
--
-- more is how many watchers are left after 100 messages, else 0: send the call again for those that were there at first.
--
-- TWICE there are messages for watchers that have come since.
-- LATE the same.
-- MEMORY it writes nothing but a ZREM, which passes.

-- @include clock

local watchers = KEYS[1]

-- @include inbox
-- @include watchers

return 'told ' .. struct.pack('<d', ring())
