-- === an argument that is never read
-- KEYS account
-- ARGV amount reason
--!^ unused
return redis.call('INCRBY', KEYS[1], ARGV[1])
-- === a local that is never read
-- KEYS account log
--!^ unused
local account, log = KEYS[1], KEYS[2]
return redis.call('GET', account)
-- === remaining arguments that are never read
-- KEYS account
-- ARGV amount reasons...
--!^ unused
return redis.call('INCRBY', KEYS[1], ARGV[1])
-- === on the second of its lines
-- KEYS account
-- KEYS log
--!^ unused
return redis.call('GET', KEYS[1])
-- === taken by a loop
-- KEYS one two
-- ARGV value
for i = 1, #KEYS do
  redis.call('SET', KEYS[i], ARGV[1])
end
return redis.call('DEL', unpack(KEYS))
-- === passed to a function
-- KEYS account
-- ARGV amount
local account, amount = KEYS[1], tonumber(ARGV[1])
local function add(key, by)
  return redis.call('INCRBY', key, by)
end
return add(account, amount)
-- === a rest, of which the first is taken
-- KEYS account
-- ARGV amount reasons...
return redis.call('INCRBY', KEYS[1], ARGV[1]) .. ARGV[2]
-- === a rest, and nothing before it
-- KEYS account
-- ARGV amount reasons...
--!^ unused
return redis.call('APPEND', KEYS[1], ARGV[2])
