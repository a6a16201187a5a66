-- === the average
local sum, count = tonumber(ARGV[1]), tonumber(ARGV[2])
return sum / count --! lossy-reply
-- === within a table
local ratio = redis.call('SCARD', KEYS[1]) / redis.call('SCARD', KEYS[2])
return {'ratio', ratio} --! lossy-reply
-- === the new value of a float
return tonumber(redis.call('INCRBYFLOAT', KEYS[1], '0.1')) --! lossy-reply
-- === what follows a nil
return {redis.call('GET', KEYS[1]), nil, 1} --! lossy-reply
-- === names
return {left = redis.call('DECR', KEYS[1])} --! lossy-reply
-- === names, in a local
local answer = {left = redis.call('DECR', KEYS[1])} --! lossy-reply
return answer
-- === whole numbers
local sum, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local ratio = sum / count
return {math.floor(sum / count), sum % count, ratio - ratio % 1, #ARGV / 2, 6 / 2}
-- === as texts
return {string.format('%.17g', 1 / 3), redis.call('INCRBYFLOAT', KEYS[1], '0.1'), tostring(0.5)}
-- === false, and nil at the end
return {redis.call('GET', KEYS[1]), false, 1, nil}
-- === names that mean something
if ARGV[1] == 'yes' then
  return {ok = 'FINE'}
end
return {err = 'NO it is not'}
-- === names that stay in the script
local answer = {left = redis.call('DECR', KEYS[1])}
return cjson.encode(answer)
-- === roots, signs and chance
local side = -math.sqrt(redis.call('SCARD', KEYS[1]))
return {math.abs(side), math.floor(side)} --! lossy-reply
