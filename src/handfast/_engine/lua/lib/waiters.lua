-- waiters: removing expired waiters from a queue that is full.
--
-- USES now read_record require_memory
-- GIVES evict_waiters

-- Remove those of the first waiters whose wait-lease has lapsed, and return how many are left.
local function evict_waiters(s)
  local MAX_EVICTED = 100 -- waiters that one call looks at
  for _, token in ipairs(redis.call('ZRANGE', s.queue, 0, MAX_EVICTED - 1)) do
    local waiter = read_record(redis.call('HGET', s.tokens, token))
    if not waiter or waiter.wait_until < now then
      require_memory(s.holders)
      redis.call('ZREM', s.queue, token)
      redis.call('HDEL', s.tokens, token)
    end
  end
  return redis.call('ZCARD', s.queue)
end
