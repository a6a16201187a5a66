-- debounce_done: end a run: its items are done, or left to the next run.
--
-- KEYS items queue
-- ARGV token ending
-- PACK ending <dd until_us are_done
-- REPLY done
-- ALONE done
--
-- until_us is as debounce_take has replied. Items that another run has by now stay as they are.
--
-- TWICE the second time it finds none.
-- LATE as in time: no other run has that until_us.
-- MEMORY the first write is a HDEL or a ZREM, which pass at maxmemory, and so does the rest.

-- @include clock

local items, queue, token = KEYS[1], KEYS[2], ARGV[1]
local until_us, are_done = struct.unpack('<dd', ARGV[2])

-- @include items

local members = redis.call('ZRANGEBYSCORE', queue, until_us, until_us)
if members[1] and are_done == 1 then
  redis.call('HDEL', items, unpack(members))
  redis.call('ZREM', queue, unpack(members))
elseif members[1] then
  redis.call('ZREM', queue, '!' .. token)
  local entries = {}
  for _, member in ipairs(members) do
    if string.sub(member, 1, 1) ~= '!' then
      entries[#entries + 1], entries[#entries + 2] = QUEUED + now, member
    end
  end
  redis.call('ZADD', queue, unpack(entries))
end
return 'done '
