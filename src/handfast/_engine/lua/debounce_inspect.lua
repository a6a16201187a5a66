-- debounce_inspect: read when the calls of one or several debounced names run, and how many items there are. Changes nothing.
--
-- KEYS burst items more...
-- REPLY state now_us first_us due_us items
-- REPLY - of several names an array with such a reply for each
--
-- `more` are the keys of further names, two each.
--
-- first_us is when the burst began, and due_us when its newest call runs; 0 where no call waits. items is the number of
-- those that no run has done.
--
-- TWICE, LATE and MEMORY it only reads.

-- @include clock

local burst = KEYS[1]

-- @include burst

local function inspect(burst_key, items)
  burst = burst_key
  load_burst()
  local count = redis.call('HLEN', items)
  if redis.call('HGET', items, '') then
    count = count - 1 -- when the hash was made
  end
  return {'state', now, first or 0, due or 0, count}
end

if #KEYS == 2 then
  return inspect(KEYS[1], KEYS[2])
end
local names = {}
for k = 1, #KEYS, 2 do
  names[#names + 1] = inspect(KEYS[k], KEYS[k + 1])
end
return names
