-- latch_watch: ask whether a latch is open; if not, get a message when it opens.
--
-- KEYS parts watchers
-- ARGV token interest wants
-- PACK interest <dd count wait_ms
-- REPLY open
-- REPLY waits left
-- ALONE open
--
-- wait_ms is how long the caller waits for the message; 0 only looks. wants is the owner text: inbox control label.
--
-- TWICE the same answer, and a single message.
-- LATE a message for a caller that has gone.
-- MEMORY the first write is a ZADD, refused at maxmemory; a call with wait_ms 0 passes.

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
