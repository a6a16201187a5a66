-- === an argument beside a number
local limit = ARGV[1]
if redis.call('SCARD', KEYS[1]) < limit then --! text-as-number
  return redis.call('SADD', KEYS[1], ARGV[2])
end
-- === never the same
if ARGV[1] == 0 then --! text-as-number
  return redis.call('DEL', KEYS[1])
end
-- === two texts
if redis.call('GET', KEYS[1]) < ARGV[1] then --? text-as-number
  return redis.call('SET', KEYS[1], ARGV[1])
end
-- === a default does not help
local limit = ARGV[1] or 10
return limit > 5 and 1 or 0 --! text-as-number
-- === a reply beside a number
if redis.call('HGET', KEYS[1], 'left') > 0 then --! text-as-number
  return redis.call('HINCRBY', KEYS[1], 'left', -1)
end
-- === the items of a reply
local values = redis.call('MGET', unpack(KEYS))
for _, value in ipairs(values) do
  if value >= 10 then --! text-as-number
    return 1
  end
end
-- === calculated
return redis.call('SET', KEYS[1], 'x', 'PX', ARGV[1] * 1000) --? text-as-number
-- === in a function
local function more(limit)
  return limit > 5 --! text-as-number
end
return more(ARGV[1]) and 1 or 0
-- === made numbers
local limit, step = tonumber(ARGV[1]), tonumber(ARGV[2] or 1)
local left = tonumber(redis.call('GET', KEYS[1]) or 0)
if left * step < limit and redis.call('SCARD', KEYS[2]) == 0 then
  return math.max(left, limit)
end
-- === made a number later
local limit = ARGV[1]
if limit ~= '' then
  limit = tonumber(limit)
else
  limit = 10
end
return limit > 5 and 1 or 0
-- === compared as texts
if redis.call('GET', KEYS[1]) == ARGV[1] and ARGV[2] == '0' and ARGV[3] < 'm' then
  return redis.call('DEL', KEYS[1])
end
-- === a number of some
return #ARGV > 2 and redis.call('EXISTS', KEYS[1]) == 1
-- === the other sign, and a function of numbers
return math.floor(-ARGV[1]) --? text-as-number
-- === how many there are
return ARGV[1] == #ARGV and 1 --! text-as-number
