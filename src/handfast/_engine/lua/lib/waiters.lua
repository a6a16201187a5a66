-- waiters: removing waiters that are gone from a queue that is full.
--
-- USES now read_record require_memory
-- GIVES evict_waiters

-- Remove those of the first waiters whose wait-lease has lapsed, or whose inbox has no subscriber, and return how many
-- are left.
local function evict_waiters(s)
  local MAX_EVICTED = 100 -- waiters that one call looks at
  for _, token in ipairs(redis.call('ZRANGE', s.queue, 0, MAX_EVICTED - 1)) do
    local waiter = read_record(redis.call('HGET', s.tokens, token))
    local alive = waiter and waiter.wait_until >= now
    if not alive or redis.call('PUBSUB', 'NUMSUB', waiter.inbox)[2] == 0 then
      require_memory(s.holders)
      redis.call('ZREM', s.queue, token)
      redis.call('HDEL', s.tokens, token)
    end
  end
  return redis.call('ZCARD', s.queue)
end
