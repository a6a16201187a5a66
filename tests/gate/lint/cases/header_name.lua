-- === the first two the other way round
-- KEYS from to
-- ARGV amount
local to, from = KEYS[1], KEYS[2] --! header-name header-name
local amount = tonumber(ARGV[1])
redis.call('DECRBY', from, amount)
return redis.call('INCRBY', to, amount)
-- === the argument has another name
-- KEYS from
-- ARGV amount
local from = KEYS[1]
local count = tonumber(ARGV[1]) --! header-name
return redis.call('DECRBY', from, count)
-- === unpacked in the wrong order
-- KEYS from to
local to, from = unpack(KEYS) --! header-name header-name
return redis.call('RENAME', from, to)
-- === the text has a name of its own, and the number has the header's
-- KEYS account
-- ARGV amount
local account, text = KEYS[1], ARGV[1]
local amount = tonumber(ARGV[1])
redis.call('SET', account, amount)
return text
-- === not given to a local at all
-- KEYS account
-- ARGV amount
return redis.call('INCRBY', KEYS[1], ARGV[1])
-- === what is made of an argument is something else
-- KEYS account
-- ARGV options
local limit = cjson.decode(ARGV[1]).limit
local is_empty = ARGV[1] == ''
return redis.call('SET', KEYS[1], is_empty and 0 or limit)
-- === unpacked in order, with a rest
-- KEYS first others...
local first, second = unpack(KEYS)
return redis.call('RENAME', first, second)
-- === no header, no names
local x = KEYS[1]
return redis.call('GET', x)
