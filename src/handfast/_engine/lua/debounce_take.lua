-- debounce_take: give a run the items that no other run has; or, with until_us, further ones of those that it was given.
--
-- KEYS items queue tombstones
-- ARGV token request
-- PACK request <dddd most within_us until_us first
-- REPLY taken made_us until_us further items
--
-- The run has them until until_us, within_us from now: if it has not said by then that they are done, another run gets
--   them. It has `most` at most. items are up to 100 of these, from the one with the number first on, each behind the time
--   of its arrival and a space; further is the number of the next one, or 0. made_us is as in debounce_put.
--
-- TWICE the same items, until the same time.
-- LATE after the end of the run, or of its call, it gets none: until_us is 0.
-- MEMORY the first write is a PEXPIRE, which passes at maxmemory, and so does the rest.

-- @include clock

local PAGE = 100
local items, queue, tombstones, token = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local most, within_us, until_us, first = struct.unpack('<dddd', ARGV[2])

-- @include items

local me = '!' .. token

-- What no run has, and no run that is dead any more.
local function free_items()
  local free, dead = {}, {}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, most)) do
    local among = string.sub(member, 1, 1) == '!' and dead or free
    among[#among + 1] = member
  end
  if not dead[1] then
    return free
  end
  redis.call('ZREM', queue, unpack(dead))
  return free_items()
end

local function take()
  local last = tonumber(redis.call('ZSCORE', queue, me))
  if last then
    return last
  end
  last = now + within_us
  while redis.call('ZCOUNT', queue, last, last) > 0 do
    last = last + 1
  end
  keep_items() -- and now all else passes at maxmemory
  local entries = {last, me}
  for _, member in ipairs(free_items()) do
    entries[#entries + 1], entries[#entries + 2] = last, member
  end
  if entries[3] then
    redis.call('ZADD', queue, unpack(entries))
  end
  return last
end

if not redis.call('ZSCORE', tombstones, token) then
  until_us = until_us > 0 and until_us or take()
end
-- The run itself is the first: `!` comes before all that tokens are made of.
local tokens = redis.call('ZRANGEBYSCORE', queue, until_us, until_us, 'LIMIT', first + 1, PAGE)
local found = {}
if tokens[1] then
  for _, item in ipairs(redis.call('HMGET', items, unpack(tokens))) do
    found[#found + 1] = item or nil -- false where the server has lost it
  end
end
local further = tokens[PAGE] and first + PAGE or 0
return {'taken', tonumber(redis.call('HGET', items, '')) or 0, until_us, further, found}
