-- === takes before it looks
redis.call('DECRBY', KEYS[1], ARGV[1]) --? write-before-check
if redis.call('EXISTS', KEYS[2]) == 0 then
  return redis.error_reply('NOACCOUNT there is none')
end
return redis.call('INCRBY', KEYS[2], ARGV[1])
-- === an assertion
redis.call('DEL', KEYS[1]) --? write-before-check
assert(tonumber(ARGV[1]), 'no number')
return redis.call('INCRBY', KEYS[1], ARGV[1])
-- === an error raised
redis.call('DEL', KEYS[1]) --? write-before-check
if #ARGV > 10 then
  error('too many')
end
return redis.call('RPUSH', KEYS[1], unpack(ARGV))
-- === item by item
for i = 1, #ARGV do
  if redis.call('SISMEMBER', KEYS[1], ARGV[i]) == 1 then
    return {err = 'TAKEN ' .. ARGV[i]}
  end
  redis.call('SADD', KEYS[1], ARGV[i]) --? write-before-check
end
-- === in a function
local function clear(key)
  redis.call('DEL', key)
end
clear(KEYS[1]) --? write-before-check
if #ARGV == 0 then
  return redis.error_reply('EMPTY nothing to add')
end
return redis.call('RPUSH', KEYS[1], unpack(ARGV))
-- === looks before it takes
if redis.call('EXISTS', KEYS[2]) == 0 then
  return redis.error_reply('NOACCOUNT there is none')
end
redis.call('DECRBY', KEYS[1], ARGV[1])
return redis.call('INCRBY', KEYS[2], ARGV[1])
-- === the write is the check
if redis.call('SETNX', KEYS[1], ARGV[1]) == 0 then
  return redis.error_reply('TAKEN it is held')
end
local count = redis.call('INCR', KEYS[2])
if count > 10 then
  return redis.error_reply('LIMIT too many')
end
return count
-- === undone
redis.call('SADD', KEYS[1], ARGV[1])
if redis.call('SCARD', KEYS[1]) > 10 then
  redis.call('SREM', KEYS[1], ARGV[1])
  return redis.error_reply('LIMIT too many')
end
return 1
-- === tidied up
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
if redis.call('ZCARD', KEYS[1]) > 10 then
  return redis.error_reply('LIMIT too many')
end
return redis.call('ZADD', KEYS[1], ARGV[2], ARGV[3])
-- === on another way
if ARGV[1] == 'clear' then
  redis.call('DEL', KEYS[1])
  return 1
end
if ARGV[1] ~= 'add' then
  return redis.error_reply('MODE clear or add')
end
return redis.call('INCR', KEYS[1])
-- === only no
redis.call('HINCRBY', KEYS[1], 'tries', 1)
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
return redis.call('SET', KEYS[2], ARGV[1])
-- === a function that is only written down
local function clear()
  redis.call('DEL', KEYS[1])
end
if #ARGV == 0 then
  return redis.error_reply('EMPTY nothing to add')
end
clear()
return redis.call('RPUSH', KEYS[1], unpack(ARGV))
