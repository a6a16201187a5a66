-- debounce_put: leave an item to the next run.
--
-- KEYS items queue tombstones
-- ARGV token item
-- REPLY put count made_us
-- REPLY full count
-- ALONE put 1 0
--
-- count is how many items a run would find now, and the dead runs among them. made_us is when the first item came, of all that are there or were done;
--   another number later says that the server has lost what it had. Of 10,000 items no run is likely to do any: then it is
--   full, and the item is not taken.
--
-- TWICE the same answer, and one item, also where a run has done it meanwhile.
-- LATE it is there, though its caller may have raised. After more than 20 seconds it may be done a second time.
-- MEMORY the first write is a HSET, refused at maxmemory.

-- @include clock

local MOST = 10000
local items, queue, tombstones = KEYS[1], KEYS[2], KEYS[3]
local token, item = ARGV[1], ARGV[2]

-- @include items
-- @include over

if redis.call('ZSCORE', tombstones, '+' .. token) then
  redis.call('PEXPIRE', tombstones, REPEAT_MS + GRACE_MS) -- a script that was cut off may have left it out
else
  local count = redis.call('ZCARD', queue)
  if count >= MOST then
    return 'full ' .. struct.pack('<d', count)
  end
  local made = redis.call('HGET', items, '') or string.format('%.0f', now)
  redis.call('HSET', items, '', made, token, string.format('%.0f ', now) .. item)
  redis.call('ZADD', queue, QUEUED + now, token)
  keep_items()
  remember('+' .. token)
end
local made = redis.call('HGET', items, '') or 0 -- where the server has lost it since
return 'put ' .. struct.pack('<dd', redis.call('ZCOUNT', queue, '-inf', now), made)
