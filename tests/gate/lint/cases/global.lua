-- === written
count = redis.call('SCARD', KEYS[1]) --! global
return count
-- === a function
function add(by) --! global
  return redis.call('INCRBY', KEYS[1], by)
end
return add(1)
-- === misspelt
local members = redis.call('SMEMBERS', KEYS[1])
return #member --! global
-- === out of its scope
if redis.call('EXISTS', KEYS[1]) == 1 then
  local found = redis.call('GET', KEYS[1])
end
return found --! global
-- === before it is there
local function first()
  return second() --! global
end
local function second()
  return 1
end
return first() + second()
-- === what scripts have not
local json = require('cjson') --! global
return json.encode(KEYS)
-- === what Lua 5.1 has not
return table.unpack(KEYS) --! global
-- === a library changed
string.trim = function(text) return text:match('^%s*(.-)%s*$') end --! global
return string.trim(ARGV[1]) --! global
-- === locals and libraries
local function count(key)
  if key then
    return 1 + count(nil)
  end
  return 0
end
local total, i = 0
for place, value in ipairs(ARGV) do
  total, i = total + #value, place
end
repeat
  local done = total >= 0
until done
local mine = {}
mine.count = bit.band(total, 255)
return {count(ARGV[1]), cjson.encode(mine), struct.pack('i', i), math.pi > 3, redis.sha1hex('')}
-- === libraries of newer Luas
return utf8.char(228) .. bit32.band(1, 3) --! global global
-- === the arguments of a function with ..., as a table
local function total(...)
  local sum = arg.n
  for _, value in ipairs(arg) do
    sum = sum + value
  end
  return sum
end
return total(1, 2)
-- === which is not there where ... is used
local function total(...)
  return arg.n + select('#', ...) --! global
end
return total(1, 2)
-- === nor outside of one
return arg[1] --! global
