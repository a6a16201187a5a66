-- waiters: removing waiters that are gone from a queue that is full.
--
-- USES now state tokens length inbox_of require_memory has_subscriber leave_queue
-- GIVES evict_waiters

-- Remove those of the first waiters whose wait-lease has lapsed or whose inbox has no subscriber.
local function evict_waiters()
  local MAX_EVICTED = 100 -- waiters that one call looks at
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', tokens, '-inf', '(0', 'LIMIT', 0, MAX_EVICTED)) do
    local its_record = redis.call('HGET', state, token)
    if not its_record or struct.unpack('<d', its_record) < now or not has_subscriber(inbox_of(its_record)) then
      require_memory()
      leave_queue(token)
    end
  end
  length = redis.call('ZCOUNT', tokens, '-inf', '(0')
end
