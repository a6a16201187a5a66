-- latch_done: note that parts are done; once enough are, tell those who wait.
--
-- KEYS parts watchers
-- ARGV size parts_done...
-- PACK size <dd count ttl_ms
-- REPLY done left more
-- ALONE done 0 0
--
-- A part counts once, however often and by whom it is done. count is how many the caller expects; a latch that has as many
--   notes no others. ttl_ms is how long the parts are remembered after the last call. left is how many are to be done.
-- more is 1 when 100 who wait were told and others may be left: send it again.
--
-- TWICE a part counts once.
-- LATE after the latch was forgotten, the parts count for the one that has begun since.
-- MEMORY the first write is a ZADD, which is refused at maxmemory; that of an open latch is a PEXPIRE, which passes.

-- @include clock

local parts, watchers = KEYS[1], KEYS[2]
local count, ttl_ms = struct.unpack('<dd', ARGV[1])

-- @include inbox
-- @include watchers

if redis.call('ZCARD', parts) < count then
  local added = {}
  for i = 2, #ARGV do
    added[2 * i - 3], added[2 * i - 2] = now, ARGV[i]
  end
  redis.call('ZADD', parts, 'NX', unpack(added))
end
redis.call('PEXPIRE', parts, ttl_ms)
local left = math.max(0, count - redis.call('ZCARD', parts))
return 'done ' .. struct.pack('<dd', left, left == 0 and ring() and 1 or 0)
