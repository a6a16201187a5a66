-- latch_done: note parts as done, and send messages to the watchers when the latch is open.
--
-- KEYS parts watchers
-- ARGV size parts_done...
-- PACK size <dd count ttl_ms
-- REPLY done left more
-- ALONE done 0 0
--
-- A part counts once, however often and by whom it is done. count is the number of parts that the caller expects. New
--   parts beyond these are noted, too, up to 100,000: a client with a larger count may wait for them. ttl_ms is how long
--   the server keeps the parts after the last call. left is the number of parts still to be done.
-- more is how many watchers are left after 100 messages, else 0: send the call again for those that were there at first.
--
-- TWICE a part counts once.
-- LATE after `forget`, the parts count for the next round of the same name.
-- MEMORY the first write is a ZADD, refused at maxmemory; of an open latch without a new part a PEXPIRE, which passes.

-- @include clock

local MOST = 100000 -- parts of a latch
local parts, watchers = KEYS[1], KEYS[2]
local count, ttl_ms = struct.unpack('<dd', ARGV[1])

-- @include inbox
-- @include watchers

-- Whether one of the parts is new, which a client with another count may wait for.
local function is_any_new()
  for _, at in ipairs(redis.call('ZMSCORE', parts, unpack(ARGV, 2))) do
    if not at then
      return true
    end
  end
end

local known = redis.call('ZCARD', parts)
if known < count or known < MOST and is_any_new() then
  local added = {}
  for i = 2, #ARGV do
    added[2 * i - 3], added[2 * i - 2] = now, ARGV[i]
  end
  redis.call('ZADD', parts, 'NX', unpack(added))
end
redis.call('PEXPIRE', parts, ttl_ms)
local left = math.max(0, count - redis.call('ZCARD', parts))
return 'done ' .. struct.pack('<dd', left, left == 0 and ring() or 0)
