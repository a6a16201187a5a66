-- over: the memory of tokens that are over, where they hold nothing: of limiters, and of debounced names.
--
-- USES now tombstones
-- GIVES remember
--
-- The sorted set `tombstones` has each with the end of its time, which is longer than a copy of its request may be late.

local function remember(...)
  local MAX_DROPPED = 200 -- more than are added
  local entries = {}
  for i, token in ipairs({...}) do
    entries[2 * i - 1], entries[2 * i] = now + REPEAT_MS * 1000, token
  end
  redis.call('ZADD', tombstones, unpack(entries))
  redis.call('PEXPIRE', tombstones, REPEAT_MS + GRACE_MS)
  local forgotten = redis.call('ZRANGEBYSCORE', tombstones, '-inf', now, 'LIMIT', 0, MAX_DROPPED)
  if forgotten[1] then
    redis.call('ZREM', tombstones, unpack(forgotten))
  end
end
