-- server: what our scripts need of a server, in Lua, so that a script that is run never leaves Lua.
--
-- This chunk gives a table of functions. It models a server's data, its clock and who listens to which channel; the
-- network, and what may go wrong in it, is Python's. The commands answer what the server's do within a script (RESP2),
-- and tests/test_simulator_server.py holds them against real servers, step by step.
--
-- A sorted set keeps its members in an array, sorted by score and then by member: the sets here are small.
local floor, format, sub, find, gmatch = math.floor, string.format, string.sub, string.find, string.gmatch
local char, byte, concat, insert, remove = string.char, string.byte, table.concat, table.insert, table.remove
local unpack, select, type, tonumber = unpack, select, type, tonumber

local stores, heard_at, here = {}, {}, 0 -- the data of each server, who listens there, and which one is at hand
local leaving, is_united = {}, false -- by server, the keys that are moving away; and whether they all are one cluster
local db, listeners = {}, {}
local now_us, now_ms = 0, 0
local out_of_memory, refuses_writes = false, false -- the latter is the error's text
local declared, dirty = {}, false
local messages, message_count = {}, 0
local calls_left = nil -- at its call of that number, or a later one, a script is cut off; nil for none
local at_first = {} -- the keys that were there when the script began
local is_torn = false -- whether the script has met a key that was not there any more

local TORN = 'ERR Script attempted to access a non local key in a cluster node'

local function fail(text)
  error({err = text}, 0)
end

-- An argument as the server gets it.
local function text(value)
  local kind = type(value)
  if kind == 'string' then
    return value
  elseif kind == 'number' then
    return format('%.17g', value)
  end
  fail('ERR Lua redis lib command arguments must be strings or integers')
end

local function double(value, complaint)
  if type(value) == 'number' and value == value then
    return value
  end
  value = text(value)
  local number = not find(value, '%s') and tonumber(value)
  if not number or number ~= number then
    fail(complaint or 'ERR value is not a valid float')
  end
  return number
end

local function integer(value)
  value = text(value)
  if value ~= '0' and not find(value, '^-?[1-9]%d*$') then
    fail('ERR value is not an integer or out of range')
  end
  return tonumber(value)
end

-- The bytes of a double, the lowest first, and back: numbers are whole, or infinite.
local function double_bytes(number)
  if number == 0 then
    return '\0\0\0\0\0\0\0\0'
  end
  local sign, fraction, exponent, rest = number < 0 and 128 or 0, 0, 2047, 0
  if number ~= math.huge and number ~= -math.huge then
    fraction, exponent = math.frexp(number < 0 and -number or number)
    fraction, exponent = fraction * 9007199254740992 - 4503599627370496, exponent + 1022
  end
  rest = fraction % 16777216
  fraction = (fraction - rest) / 16777216
  return char(
    rest % 256,
    floor(rest / 256) % 256,
    floor(rest / 65536),
    fraction % 256,
    floor(fraction / 256) % 256,
    floor(fraction / 65536) % 256,
    exponent % 16 * 16 + floor(fraction / 16777216),
    sign + floor(exponent / 16)
  )
end

local function bytes_double(data, at)
  local a, b, c, d, e, f, g, h = byte(data, at, at + 7)
  local sign, exponent = h < 128 and 1 or -1, h % 128 * 16 + floor(g / 16)
  local fraction = (((((g % 16 * 256 + f) * 256 + e) * 256 + d) * 256 + c) * 256 + b) * 256 + a
  if exponent == 2047 then
    return sign * math.huge
  elseif exponent == 0 then
    return 0
  end
  return sign * math.ldexp(fraction + 4503599627370496, exponent - 1075)
end

-- The library of the same name, with the formats that scripts use: a double, a byte, and a text as long as the number
-- before it.
local struct = {}

function struct.pack(layout, ...)
  local packed, count = {}, 0
  for kind in gmatch(layout, '[dBc]') do
    count = count + 1
    local value = select(count, ...)
    packed[count] = kind == 'd' and double_bytes(tonumber(value)) or kind == 'B' and char(value % 256) or value
  end
  return concat(packed)
end

function struct.unpack(layout, data, at)
  local found, count = {}, 0
  at = at or 1
  for kind in gmatch(layout, '[dBc]') do
    local size = kind == 'd' and 8 or kind == 'B' and 1 or found[count]
    if at + size - 1 > #data then
      fail('ERR data string too short')
    elseif kind == 'c' then
      found[count] = sub(data, at, at + size - 1)
    else
      count = count + 1
      found[count] = kind == 'd' and bytes_double(data, at) or byte(data, at)
    end
    at = at + size
  end
  found[count + 1] = at
  return unpack(found, 1, count + 1)
end

local function show(score)
  if score == math.huge then
    return 'inf'
  elseif score == -math.huge then
    return '-inf'
  end
  return format('%.17g', score)
end

-- What is stored at a key, if it is of that kind. A key lives through the millisecond that it ends in.
local function entry(key, kind)
  if not declared[key] then
    fail('ERR the key ' .. text(key) .. ' was not declared in KEYS')
  end
  local found = db[key]
  if not found then
    if calls_left == 0 and at_first[key] or is_united and leaving[here] and leaving[here][key] then
      is_torn = true
      fail(TORN)
    end
    return nil
  end
  local expires = found.expires
  if expires and now_ms > expires then
    db[key] = nil
    return nil
  end
  if kind and found.kind ~= kind then
    fail('WRONGTYPE Operation against a key holding the wrong kind of value')
  end
  return found
end

local function make(key, kind)
  local made = {kind = kind, size = 0}
  if kind == 'zset' then
    made.scores, made.order = {}, {}
  else
    made.fields = {}
  end
  db[key] = made
  return made
end

-- The first place in the order whose member does not come before that score and member.
local function place(set, score, member)
  local order, scores = set.order, set.scores
  local low, high = 1, set.size + 1
  while low < high do
    local middle = floor((low + high) / 2)
    local other = order[middle]
    local its = scores[other]
    if its < score or its == score and other < member then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local function drop(set, member)
  remove(set.order, place(set, set.scores[member], member))
  set.scores[member] = nil
  set.size = set.size - 1
end

local function put(set, score, member)
  if set.scores[member] then
    drop(set, member)
  end
  insert(set.order, place(set, score, member), member) -- mostly at the end
  set.scores[member] = score
  set.size = set.size + 1
end

local function bound(value)
  value = text(value)
  local open = sub(value, 1, 1) == '('
  return double(open and sub(value, 2) or value, 'ERR min or max is not a float'), open
end

-- The set at a key, and the first and the last place of its members whose scores are in a range.
local function range(key, min, max)
  local least, after = bound(min)
  local most, before = bound(max)
  local set = entry(key, 'zset')
  local first, last = 1, set and set.size or 0
  while first <= last do
    local score = set.scores[set.order[first]]
    if score > least or score == least and not after then
      break
    end
    first = first + 1
  end
  while last >= first do
    local score = set.scores[set.order[last]]
    if score < most or score == most and not before then
      break
    end
    last = last - 1
  end
  return set, first, last
end

local function slice(set, first, last, with_scores)
  local found, count = {}, 0
  for i = first, last do
    local member = set.order[i]
    count = count + 1
    found[count] = member
    if with_scores then
      count = count + 1
      found[count] = show(set.scores[member])
    end
  end
  return found
end

local function expires_in(key, found, ms)
  if ms <= 0 then
    db[key] = nil
  else
    found.expires = now_ms + ms
  end
end

-- What each command does, and answers.
local commands = {}

function commands.TIME()
  local seconds = floor(now_us / 1000000)
  return {format('%.0f', seconds), format('%.0f', now_us - seconds * 1000000)}
end

function commands.EXISTS(...)
  local count = 0
  for i = 1, select('#', ...) do
    if entry((select(i, ...))) then
      count = count + 1
    end
  end
  return count
end

function commands.DEL(...)
  local count = 0
  for i = 1, select('#', ...) do
    local key = select(i, ...)
    if entry(key) then
      db[key] = nil
      count = count + 1
    end
  end
  return count
end

function commands.RENAME(key, other)
  local found = entry(key)
  if not found then
    fail('ERR no such key')
  end
  db[key], db[other] = nil, found
  return {ok = 'OK'}
end

function commands.PTTL(key)
  local found = entry(key)
  if not found then
    return -2
  end
  return found.expires and found.expires - now_ms or -1
end

function commands.PEXPIRE(key, ms)
  ms = integer(ms)
  local found = entry(key)
  if not found then
    return 0
  end
  expires_in(key, found, ms)
  return 1
end

function commands.GET(key)
  local found = entry(key, 'string')
  return found and found.value or false
end

function commands.SET(key, value, option, ms)
  value = text(value)
  if option and (option ~= 'PX' or not ms) then
    fail('ERR syntax error')
  end
  ms = option and integer(ms)
  if ms and ms <= 0 then
    fail("ERR invalid expire time in 'set' command")
  end
  entry(key)
  db[key] = {kind = 'string', value = value, expires = ms and now_ms + ms}
  return {ok = 'OK'}
end

function commands.SETEX(key, seconds, value)
  seconds, value = integer(seconds), text(value)
  if seconds <= 0 then
    fail("ERR invalid expire time in 'setex' command")
  end
  entry(key)
  db[key] = {kind = 'string', value = value, expires = now_ms + seconds * 1000}
  return {ok = 'OK'}
end

function commands.HSET(key, ...)
  local count, added = select('#', ...), 0
  if count % 2 == 1 then
    fail("ERR wrong number of arguments for 'hset' command")
  end
  local hash = entry(key, 'hash') or make(key, 'hash')
  for i = 1, count, 2 do
    local field, value = select(i, ...)
    field, value = text(field), text(value)
    if hash.fields[field] == nil then
      hash.size, added = hash.size + 1, added + 1
    end
    hash.fields[field] = value
  end
  return added
end

function commands.HGET(key, field)
  local hash = entry(key, 'hash')
  return hash and hash.fields[text(field)] or false
end

function commands.HMGET(key, ...)
  local hash, found = entry(key, 'hash'), {...}
  for i = 1, select('#', ...) do
    found[i] = hash and hash.fields[text(found[i])] or false
  end
  return found
end

function commands.HEXISTS(key, field)
  local hash = entry(key, 'hash')
  return hash and hash.fields[text(field)] and 1 or 0
end

function commands.HLEN(key)
  local hash = entry(key, 'hash')
  return hash and hash.size or 0
end

function commands.HKEYS(key)
  local hash, found = entry(key, 'hash'), {}
  for field in pairs(hash and hash.fields or {}) do
    found[#found + 1] = field
  end
  return found
end

function commands.HDEL(key, ...)
  local hash, gone = entry(key, 'hash'), 0
  for i = 1, select('#', ...) do
    local field = text((select(i, ...)))
    if hash and hash.fields[field] then
      hash.fields[field] = nil
      hash.size, gone = hash.size - 1, gone + 1
    end
  end
  if hash and hash.size == 0 then
    db[key] = nil
  end
  return gone
end

local CONDITIONS = {NX = true, XX = true, GT = true}

function commands.ZADD(key, ...)
  local first, count, condition = 1, select('#', ...), nil
  local word = ...
  if CONDITIONS[word] then
    first, condition = 2, word
  end
  if count < first + 1 or (count - first) % 2 == 0 then
    fail('ERR syntax error')
  end
  for i = first, count, 2 do
    double((select(i, ...)))
  end
  local set, added = entry(key, 'zset'), 0
  if not set and condition == 'XX' then
    return 0
  end
  set = set or make(key, 'zset')
  for i = first, count, 2 do
    local score, member = select(i, ...)
    score, member = double(score), text(member)
    local known = set.scores[member]
    if not known and condition ~= 'XX' then
      put(set, score, member)
      added = added + 1
    elseif known and condition ~= 'NX' and known ~= score and (condition ~= 'GT' or score > known) then
      put(set, score, member)
    end
  end
  return added
end

function commands.ZREM(key, ...)
  local set, gone = entry(key, 'zset'), 0
  for i = 1, select('#', ...) do
    local member = text((select(i, ...)))
    if set and set.scores[member] then
      drop(set, member)
      gone = gone + 1
    end
  end
  if set and set.size == 0 then
    db[key] = nil
  end
  return gone
end

function commands.ZPOPMIN(key)
  local set = entry(key, 'zset')
  local found = set and slice(set, 1, 1, true) or {}
  if found[1] then
    drop(set, found[1])
    if set.size == 0 then
      db[key] = nil
    end
  end
  return found
end

function commands.ZREMRANGEBYSCORE(key, min, max)
  local set, first, last = range(key, min, max)
  for i = last, first, -1 do
    drop(set, set.order[i])
  end
  if set and set.size == 0 then
    db[key] = nil
  end
  return math.max(0, last - first + 1)
end

-- The set at a key, and its first and last place between two ranks, which count from its end below 0.
local function ranked(key, first, last)
  first, last = integer(first), integer(last)
  local set = entry(key, 'zset')
  local size = set and set.size or 0
  return set, math.max(0, first < 0 and first + size or first) + 1, math.min(size - 1, last < 0 and last + size or last) + 1
end

function commands.ZREMRANGEBYRANK(key, first, last)
  local set
  set, first, last = ranked(key, first, last)
  for i = last, first, -1 do
    drop(set, set.order[i])
  end
  if set and set.size == 0 then
    db[key] = nil
  end
  return math.max(0, last - first + 1)
end

function commands.ZSCORE(key, member)
  local set = entry(key, 'zset')
  local score = set and set.scores[text(member)]
  return score and show(score) or false
end

function commands.ZMSCORE(key, ...)
  local set, found = entry(key, 'zset'), {...}
  for i = 1, select('#', ...) do
    local score = set and set.scores[text(found[i])]
    found[i] = score and show(score) or false
  end
  return found
end

function commands.ZRANK(key, member)
  local set = entry(key, 'zset')
  member = text(member)
  local score = set and set.scores[member]
  return score and place(set, score, member) - 1 or false
end

function commands.ZCARD(key)
  local set = entry(key, 'zset')
  return set and set.size or 0
end

function commands.ZCOUNT(key, min, max)
  local _, first, last = range(key, min, max)
  return math.max(0, last - first + 1)
end

function commands.ZRANGE(key, first, last, with_scores)
  if with_scores and with_scores ~= 'WITHSCORES' then
    fail('ERR syntax error')
  end
  local set
  set, first, last = ranked(key, first, last)
  return slice(set, first, last, with_scores)
end

function commands.ZRANGEBYSCORE(key, min, max, ...)
  local with_scores, offset, limit = false, 0, -1
  local i, count = 1, select('#', ...)
  while i <= count do
    local word = select(i, ...)
    if word == 'WITHSCORES' then
      with_scores, i = true, i + 1
    elseif word == 'LIMIT' and i + 2 <= count then
      local _, start, most = select(i, ...)
      offset, limit, i = integer(start), integer(most), i + 3
    else
      fail('ERR syntax error')
    end
  end
  local set, first, last = range(key, min, max)
  if offset < 0 then
    return {}
  end
  first = first + offset
  if limit >= 0 then
    last = math.min(last, first + limit - 1)
  end
  return slice(set, first, last, with_scores)
end

function commands.PUBLISH(channel, message)
  channel, message = text(channel), text(message)
  messages[message_count + 1], messages[message_count + 2] = channel, message
  message_count = message_count + 2
  return listeners[channel] or 0
end

commands.SPUBLISH = commands.PUBLISH

function commands.PUBSUB(what, ...)
  if what ~= 'NUMSUB' and what ~= 'SHARDNUMSUB' then
    fail('ERR unknown subcommand')
  end
  local found = {}
  for i = 1, select('#', ...) do
    local channel = text((select(i, ...)))
    found[i * 2 - 1], found[i * 2] = channel, listeners[channel] or 0
  end
  return found
end

-- How many arguments each takes at least and at most, and which of them write: 1, or 2 if they may need memory.
local rules = {
  DEL = {1, 1e9, 1},
  EXISTS = {1, 1e9},
  GET = {1, 1},
  HDEL = {2, 1e9, 1},
  HEXISTS = {2, 2},
  HGET = {2, 2},
  HKEYS = {1, 1},
  HLEN = {1, 1},
  HMGET = {2, 1e9},
  HSET = {3, 1e9, 2},
  PEXPIRE = {2, 2, 1},
  PTTL = {1, 1},
  PUBLISH = {2, 2},
  PUBSUB = {1, 1e9},
  RENAME = {2, 2, 1},
  SET = {2, 4, 2},
  SETEX = {3, 3, 2},
  SPUBLISH = {2, 2},
  TIME = {0, 0},
  ZADD = {3, 1e9, 2},
  ZCARD = {1, 1},
  ZCOUNT = {3, 3},
  ZMSCORE = {2, 1e9},
  ZPOPMIN = {1, 1, 1},
  ZRANGE = {3, 4},
  ZRANGEBYSCORE = {3, 1e9},
  ZRANK = {2, 2},
  ZREM = {2, 1e9, 1},
  ZREMRANGEBYRANK = {3, 3, 1},
  ZREMRANGEBYSCORE = {3, 3, 1},
  ZSCORE = {2, 2},
}

local redis = {}

function redis.call(name, ...)
  local rule, count = rules[name], select('#', ...)
  if not rule then
    fail('ERR Unknown Redis command called from script')
  elseif count < rule[1] or count > rule[2] then
    fail('ERR Wrong number of args calling Redis command from script')
  elseif calls_left and calls_left > 0 then
    calls_left = calls_left - 1
  end
  local kind = rule[3]
  if kind then
    if refuses_writes then
      fail(refuses_writes)
    elseif kind == 2 and out_of_memory and not dirty then
      fail("OOM command not allowed when used memory > 'maxmemory'.")
    end
    dirty = true
  end
  return commands[name](...)
end

function redis.pcall(...)
  local fine, reply = pcall(redis.call, ...)
  if fine or type(reply) == 'table' then
    return reply
  end
  return {err = 'ERR ' .. tostring(reply)}
end

function redis.error_reply(words)
  return {err = words}
end

function redis.status_reply(words)
  return {ok = words}
end

-- What a script may use: it makes no globals, and asks for none that are not there.
local sandbox = setmetatable({
  redis = redis,
  math = math,
  string = string,
  struct = struct,
  table = table,
  assert = assert,
  error = error,
  ipairs = ipairs,
  next = next,
  pairs = pairs,
  pcall = pcall,
  select = select,
  tonumber = tonumber,
  tostring = tostring,
  type = type,
  unpack = unpack,
}, {
  __index = function(_, name)
    fail('ERR Script attempted to access nonexistent global variable ' .. tostring(name))
  end,
  __newindex = function(_, name)
    fail('ERR Attempt to modify a readonly table, script: ' .. tostring(name))
  end,
})

local scripts = {}
local KEYS, ARGV, last_reply = {}, {}, nil

-- A reply as the client gets it, within arrays as bytes of the wire: nested ones are rare.
local function wire(value)
  local kind = type(value)
  if kind == 'string' then
    return '$' .. #value .. '\r\n' .. value .. '\r\n'
  elseif kind == 'number' then
    return format(':%.0f\r\n', value < 0 and math.ceil(value) or floor(value))
  elseif kind ~= 'table' then
    return value and ':1\r\n' or '_\r\n'
  elseif value.err then
    return '-' .. value.err .. '\r\n'
  elseif value.ok then
    return '+' .. value.ok .. '\r\n'
  end
  local items = {}
  for i, item in ipairs(value) do
    items[i] = wire(item)
  end
  return '*' .. #items .. '\r\n' .. concat(items)
end

local server = {struct = struct}

local function hold(data)
  db = data
  stores[here] = data
end

-- Take another server to hand: its data and its subscribers. The first one is 0.
function server.use(number)
  here = number
  stores[number], heard_at[number] = stores[number] or {}, heard_at[number] or {}
  db, listeners = stores[number], heard_at[number]
end

-- Begin anew with nothing stored.
function server.reset()
  leaving, is_united = {}, false
  stores, heard_at, out_of_memory, refuses_writes, calls_left = {}, {}, false, false, nil
  server.use(0)
  messages, message_count = {}, 0
end

-- Have a script that can be run by this name. Answers what is wrong with it, if anything is.
function server.define(name, source)
  local script, complaint = loadstring(source, '@user_script')
  if not script then
    return complaint
  end
  scripts[name] = setfenv(script, sandbox)
end

-- Run a script at that moment of the server's clock. Answers its error, or false, and its reply.
function server.run(name, moment_us, key_count, ...)
  now_us, now_ms, dirty, is_torn = moment_us, floor(moment_us / 1000), false, false
  messages, message_count = {}, 0
  declared, KEYS, ARGV = {}, {...}, {}
  for i = key_count + 1, #KEYS do
    ARGV[i - key_count], KEYS[i] = KEYS[i], nil
  end
  for i = 1, key_count do
    declared[KEYS[i]], at_first[KEYS[i]] = true, db[KEYS[i]] ~= nil
  end
  rawset(sandbox, 'KEYS', KEYS)
  rawset(sandbox, 'ARGV', ARGV)
  local fine, reply = pcall(scripts[name])
  last_reply, calls_left = fine and reply or nil, nil
  if fine then
    return false, reply
  end
  return type(reply) == 'table' and reply.err or 'ERR ' .. tostring(reply), nil
end

-- The same for Python: the error; true for a text or a number, or nil for an array of them, which follow; else false, and the
-- bytes of the wire follow. The first result is how many messages are to be fetched.
function server.call(name, moment_us, key_count, ...)
  local complaint, reply = server.run(name, moment_us, key_count, ...)
  if complaint then
    return message_count, complaint
  elseif type(reply) == 'string' then
    return message_count, true, reply
  elseif type(reply) == 'number' then
    return message_count, true, reply < 0 and math.ceil(reply) or floor(reply)
  elseif type(reply) ~= 'table' or reply.err or reply.ok then
    return message_count, false, wire(reply)
  end
  local count = #reply
  for i = 1, count do
    local item = reply[i]
    if type(item) == 'number' then
      reply[i] = item < 0 and math.ceil(item) or floor(item)
    elseif type(item) ~= 'string' then
      return message_count, false, wire(reply)
    end
  end
  return message_count, nil, unpack(reply, 1, count)
end

-- What the last script published: channels and messages in turn.
function server.messages()
  return unpack(messages, 1, message_count)
end

-- How many there are who listen to a channel at a server.
function server.listen(channel, count, number)
  heard_at[number] = heard_at[number] or {}
  heard_at[number][channel] = count > 0 and count or nil
end

-- Whether the last script wrote.
function server.wrote()
  return dirty
end

-- Whether a script may write what needs memory.
function server.takes_writes()
  return not (out_of_memory or refuses_writes or is_torn)
end

function server.set_memory(is_out)
  out_of_memory = is_out
end

-- Cut the next script off after so many calls, at the first key that is not there any more, and at all further ones: the
-- prefix stays written. Servers do so while a slot moves: before the first call they see whether the keys are there, and
-- none moves while a script runs.
function server.cut_off(calls)
  calls_left = calls + 1
end

function server.set_refusal(words)
  refuses_writes = words
end

local function copy(of)
  local made = {}
  for key, value in pairs(of) do
    made[key] = type(value) == 'table' and copy(value) or value
  end
  return made
end

-- Everything stored, as a replica would have it: to be given to `restore` later, any number of times.
function server.snapshot()
  return copy(db)
end

function server.restore(saved)
  hold(copy(saved))
end

-- Give another server the same data.
function server.copy_to(number)
  stores[number] = copy(db)
end

function server.flush()
  hold({})
  if is_united then
    for number in pairs(stores) do
      stores[number] = {}
    end
    server.use(here)
  end
end

function server.evict(key)
  for _, store in pairs(is_united and stores or {db}) do
    store[key] = nil
  end
end

-- Take all servers for one cluster: each key is at one of them.
function server.unite()
  is_united = true
end

-- Move a key from one server to another.
function server.move(from, to, key)
  server.use(to)
  server.use(from)
  stores[to][key], stores[from][key] = stores[from][key] or stores[to][key], nil
end

-- Note whether keys are moving away from a server. A script that comes to one that is not there any more is cut off.
function server.leave(number, is_leaving, ...)
  leaving[number] = leaving[number] or {}
  for i = 1, select('#', ...) do
    leaving[number][select(i, ...)] = is_leaving or nil
  end
end

-- Let a server take the place of another one, with its data.
function server.take_over(number, successor)
  stores[successor], leaving[successor] = stores[number], leaving[number]
  stores[number], leaving[number] = {}, nil
  server.use(successor)
end

-- How many of these keys a server has.
function server.count(number, moment_us, ...)
  local count = 0
  server.use(number)
  for i = 1, select('#', ...) do
    local found = db[select(i, ...)]
    if found and not (found.expires and floor(moment_us / 1000) > found.expires) then
      count = count + 1
    end
  end
  return count
end

-- What is stored at a key, for those who check: nil when it is over.
function server.peek(key, moment_us)
  local found = db[key]
  if not found and is_united then
    for _, store in pairs(stores) do
      found = found or store[key]
    end
  end
  if found and not (found.expires and floor(moment_us / 1000) > found.expires) then
    return found
  end
end

-- Everything stored, as text in a fixed order.
function server.dump(moment_us)
  local lines, keys = {}, {}
  for key in pairs(db) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  for _, key in ipairs(keys) do
    local found = server.peek(key, moment_us)
    if found then
      local line = {key, found.kind, found.expires and format('%.0f', found.expires) or 'forever'}
      if found.kind == 'zset' then
        for _, member in ipairs(found.order) do
          line[#line + 1] = member .. '=' .. show(found.scores[member])
        end
      elseif found.kind == 'hash' then
        local fields = {}
        for field in pairs(found.fields) do
          fields[#fields + 1] = field
        end
        table.sort(fields)
        for _, field in ipairs(fields) do
          line[#line + 1] = field .. '=' .. found.fields[field]
        end
      else
        line[#line + 1] = found.value
      end
      lines[#lines + 1] = concat(line, ' ')
    end
  end
  return concat(lines, '\n')
end

-- The last script's keys, its arguments and its reply, for those who check.
function server.last()
  return KEYS, ARGV, last_reply
end

function server.heard(channel)
  return listeners[channel] or 0
end

return server
