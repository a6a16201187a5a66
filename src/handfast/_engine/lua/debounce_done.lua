-- debounce_done: end a run: its items are done, or left to the next run.
--
-- KEYS items queue tombstones
-- ARGV token ending
-- PACK ending <dd until_us are_done
-- REPLY done
-- ALONE done
--
-- until_us is as debounce_take has replied. Items that another run has by now stay as they are.
--
-- TWICE the second time it finds none.
-- LATE as in time: no other run has that until_us.
-- MEMORY the first write is a ZREM, which passes at maxmemory, and so does the rest.

-- @include clock

local items, queue, tombstones, token = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local until_us, are_done = struct.unpack('<dd', ARGV[2])

-- @include items
-- @include over

redis.call('ZREM', queue, '!' .. token)
remember(token)
local tokens = redis.call('ZRANGEBYSCORE', queue, until_us, until_us)
if tokens[1] and are_done == 1 then
  redis.call('HDEL', items, unpack(tokens))
  redis.call('ZREM', queue, unpack(tokens))
elseif tokens[1] then
  local entries = {}
  for i, its_token in ipairs(tokens) do
    entries[2 * i - 1], entries[2 * i] = QUEUED + now, its_token
  end
  redis.call('ZADD', queue, unpack(entries))
end
return 'done '
