-- latch_watch: ask whether a latch is open, and get a message when it may be.
--
-- KEYS parts watchers
-- ARGV token interest wants
-- PACK interest <dd count wait_ms
-- REPLY open
-- REPLY waits left
-- ALONE open
--
-- wait_ms is how long the message is wanted; 0 only looks. wants is who asks: inbox control label.
--
-- TWICE the same answer, and one message.
-- LATE a message that nothing waits for.
-- MEMORY the first write is a ZADD, which is refused at maxmemory; to look passes.

-- @include clock

local parts, watchers = KEYS[1], KEYS[2]
local count, wait_ms = struct.unpack('<dd', ARGV[2])

-- @include inbox
-- @include watchers

local left = count - redis.call('ZCARD', parts)
if left <= 0 then
  return 'open '
end
if wait_ms > 0 then
  watch(ARGV[1], string.match(ARGV[3], '^%S+'), wait_ms)
end
return 'waits ' .. struct.pack('<d', left)
