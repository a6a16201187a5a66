-- === written down
return redis.call('GET', 'counter') --! undeclared-key
-- === joined
return redis.call('GET', KEYS[1] .. ':count') --! undeclared-key
-- === joined before
local key = 'user:' .. ARGV[1]
redis.call('HSET', key, 'name', ARGV[2]) --! undeclared-key
-- === formatted
local key = string.format('user:%s', ARGV[1])
return redis.call('HGETALL', key) --! undeclared-key
-- === an argument
return redis.call('GET', ARGV[1]) --! undeclared-key
-- === read from the server
for _, key in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  redis.call('DEL', key) --! undeclared-key
end
-- === the second of two
return redis.call('RENAME', KEYS[1], 'new') --! undeclared-key
-- === the last of many
return redis.call('SUNIONSTORE', KEYS[1], KEYS[2], 'third') --! undeclared-key
-- === behind a number of keys
return redis.call('ZUNIONSTORE', KEYS[1], 2, KEYS[2], ARGV[1], 'WEIGHTS', 1, 2) --! undeclared-key
-- === every other one
return redis.call('MSET', KEYS[1], 'one', 'two', 'three') --! undeclared-key
-- === of a stream
return redis.call('XREAD', 'COUNT', 1, 'STREAMS', KEYS[1], 'other', '0', '0') --! undeclared-key
-- === given to a function
local function add(key, by)
  return redis.call('INCRBY', key, by)
end
add(KEYS[1], 1)
return add('all', 1) --! undeclared-key
-- === through two functions
local function add(key, by)
  return redis.call('INCRBY', key, by)
end
local function add_one(key)
  return add(key, 1)
end
add_one(KEYS[1])
return add_one('all') --! undeclared-key
-- === a function of a table
local counter = {}
function counter.add(key)
  return redis.call('INCR', key)
end
counter.add(KEYS[1])
return counter.add(ARGV[1]) --! undeclared-key
-- === under another name
local call = redis.call
return call('get', 'counter') --! undeclared-key
-- === protected
local is_there, value = pcall(redis.call, 'GET', 'counter') --! undeclared-key
return is_there and value
-- === none
return redis.call('GET') --! undeclared-key
-- === made one of KEYS
KEYS[1] = 'counter' --! undeclared-key
return redis.call('GET', KEYS[1])
-- === by a pattern
return redis.call('SORT', KEYS[1], 'BY', 'weight_*', 'GET', '#') --! undeclared-key
-- === the keys as they are
local from, to = KEYS[1], KEYS[2]
redis.call('RENAME', from, to)
redis.call('DEL', unpack(KEYS))
redis.call('ZUNIONSTORE', KEYS[1], #KEYS - 1, unpack(KEYS, 2))
redis.call('XREAD', 'COUNT', 1, 'STREAMS', KEYS[1], KEYS[2], '0', '0')
redis.call('MSET', KEYS[1], 'one', KEYS[2], 'two')
redis.call('OBJECT', 'ENCODING', KEYS[1])
redis.call('BITOP', 'AND', KEYS[1], KEYS[2], KEYS[3])
redis.call('PUBLISH', 'news', 'it is done')
return redis.call('SORT', KEYS[1], 'BY', 'nosort', 'GET', '#', 'STORE', KEYS[2])
-- === in loops
for i = 1, #KEYS do
  local key = KEYS[i]
  redis.call('DEL', key)
end
for _, key in ipairs(KEYS) do
  redis.call('DEL', key)
end
-- === in tables
local mine = {KEYS[1], ARGV[1]}
local all = {}
for i = 2, #KEYS do
  table.insert(all, KEYS[i])
  all[#all + 1] = KEYS[i]
end
local named = {source = KEYS[1], limit = 10}
redis.call('GET', mine[1])
redis.call('DEL', unpack(all))
redis.call('GET', named.source)
return redis.call('GET', all[1])
-- === chosen
local key = ARGV[1] == 'left' and KEYS[1] or KEYS[2]
return redis.call('GET', key)
-- === from functions
local function key(side)
  return side == 'left' and KEYS[1] or KEYS[2]
end
local function get(name)
  return redis.call('GET', name)
end
pcall(get, KEYS[1])
return get(key(ARGV[1]))
-- === not to be followed
local ways = {get = function(key) return redis.call('GET', key) end}
return ways[ARGV[1]](KEYS[1])
-- === unpacked with other things
local order = {KEYS[1], 'EX', 10}
order[#order + 1] = ARGV[1]
redis.call('SET', unpack(order))
local pairs_of = {}
for i = 1, #KEYS do
  pairs_of[#pairs_of + 1] = KEYS[i]
  pairs_of[#pairs_of + 1] = ARGV[i]
end
return redis.call('MSET', unpack(pairs_of))
-- === a function of two commands
local function send(command, first)
  return redis.call(command, first)
end
send('GET', KEYS[1])
return send('PING', 'hello')
-- === shadowed
local function count(KEYS)
  return redis.call('GET', KEYS)
end
return count(KEYS[1])
-- === one table or another
local chosen = ARGV[1] == 'all' and KEYS or {KEYS[1]}
redis.call('GET', chosen[1])
local built = ARGV[1] == 'all' and KEYS or {'counter'}
return redis.call('GET', built[1]) --! undeclared-key
-- === tables in tables
local rows = {{KEYS[1], 1}, {KEYS[2], 2}}
redis.call('GET', rows[2][1])
local names = {{'one', 1}}
for _, row in ipairs(rows) do
  redis.call('GET', row[1])
end
return redis.call('GET', names[1][1]) --! undeclared-key
-- === a function gives a table
local function mine()
  return {KEYS[1], 'count'}
end
redis.call('GET', mine()[1])
return redis.call('GET', mine()[2]) --! undeclared-key
-- === called where it stands
local found = (function(key) return redis.call('GET', key) end)(KEYS[1])
local fixed = (function(key) return redis.call('GET', key) end)('fixed') --! undeclared-key
local ok, other = pcall(function(key) return redis.call('GET', key) end, 'other') --! undeclared-key
return ok and found == other and fixed
-- === through functions of Lua
local list = {KEYS[1], KEYS[2]}
redis.call('GET', table.remove(list))
redis.call('GET', assert(KEYS[1], 'no key'))
redis.call('GET', tostring(KEYS[1]))
redis.call('GET', (select(2, unpack(KEYS))))
return redis.call('GET', (select(2, unpack(ARGV)))) --! undeclared-key
-- === any number of parameters
local function drop(...)
  return redis.call('DEL', ...)
end
return drop(KEYS[1], KEYS[2])
-- === kept somewhere, called from there
local hooks = {}
for _, name in ipairs(ARGV) do
  hooks[name] = function(key) return redis.call('GET', key) end
end
return hooks[ARGV[1]](KEYS[1])
-- === what a method gets
local counter = {}
function counter:get(key)
  return redis.call('GET', key)
end
return counter:get(KEYS[1])
-- === unpacked, where each is a key
return redis.call('DEL', unpack({KEYS[1], 'other'})) --! undeclared-key
