-- over: the memory of tokens that are over, where they hold nothing: of limiters, and of debounced names.
--
-- USES now tombstones
-- GIVES remember
--
-- The sorted set `tombstones` has each with the end of its time, which is longer than a copy of its request may be late.

local function remember(token)
  local MAX_DROPPED = 100 -- more than are added
  redis.call('ZADD', tombstones, now + REPEAT_MS * 1000, token)
  redis.call('PEXPIRE', tombstones, REPEAT_MS + GRACE_MS)
  local forgotten = redis.call('ZRANGEBYSCORE', tombstones, '-inf', now, 'LIMIT', 0, MAX_DROPPED)
  if forgotten[1] then
    redis.call('ZREM', tombstones, unpack(forgotten))
  end
end
