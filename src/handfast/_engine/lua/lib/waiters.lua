-- waiters: making room in a line that is full.
--
-- USES queue tokens now read_record
-- GIVES make_room

-- How many stand in line without those of the first 100 whose wait-lease has lapsed: they are there
-- only until somebody looks.
local function make_room()
  for _, waiter in ipairs(redis.call('ZRANGE', queue, 0, 99)) do
    local record = redis.call('HGET', tokens, waiter)
    local _, _, _, wait_until = read_record(record or '')
    if not wait_until or wait_until < now then
      redis.call('ZADD', queue, 'XX', 0, '')
      redis.call('ZREM', queue, waiter)
      redis.call('HDEL', tokens, waiter)
    end
  end
  return redis.call('ZCARD', queue)
end
