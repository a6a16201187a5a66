-- === a reply in a local
local value = redis.call('GET', KEYS[1])
if value == nil then --! never-nil
  return 0
end
-- === the reply itself
return redis.call('HGET', KEYS[1], ARGV[1]) ~= nil and 1 or 0 --! never-nil
-- === nil on the left
local value = redis.pcall('LPOP', KEYS[1])
return nil == value and 1 or 0 --! never-nil
-- === a reply that may be another value
local value
if ARGV[1] == 'yes' then
  value = redis.call('GET', KEYS[1])
end
return value == nil and 1 or 0
-- === an item, of which there may be none
local first = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
return first == nil and 1 or 0
-- === what is false
return redis.call('GET', KEYS[1]) == false and 1 or 0
-- === an argument
return ARGV[1] == nil and 1 or 0
-- === a decoded reply
local value = cjson.decode(redis.call('GET', KEYS[1]))
return value == nil and 1 or 0
-- === with RESP3
redis.setresp(3)
return redis.call('GET', KEYS[1]) == nil and 1 or 0
