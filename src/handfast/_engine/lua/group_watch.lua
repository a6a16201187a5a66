-- group_watch: list the members; if the caller knows them already, get a message when there may be others.
--
-- KEYS state tokens watchers
-- ARGV token interest wants
-- PACK interest <dddd latest known shown wait_ms
-- REPLY members now_us fence size rows
-- REPLY empty fence
-- REPLY waits left_us
-- ALONE empty 0
--
-- latest and known are the fence and the size of the members that the caller knows, -1 if it knows nothing: since later
--   members have larger fences, these two tell whether anything has changed. wait_ms is how long the caller waits
--   for the message; 0 only looks. wants is the owner text: inbox control label.
-- rows lists at most `shown` members, two items each: the end of the lease in us, and the record, as in lib/record.lua.
-- waits is the answer if nothing has changed. left_us is the time until the first lease ends, unless it is renewed; 0 if
--   there is no member. The end of a lease sends no message, so the caller asks again then.
--
-- TWICE the same answer, and a single message.
-- LATE a message for a caller that has gone.
-- MEMORY the first write is a ZADD, refused at maxmemory; a call with wait_ms 0 passes, and so does a call with news.

-- @include clock
-- @include record
-- @include state

local watchers = KEYS[3]
local latest, known, shown, wait_ms = struct.unpack('<dddd', ARGV[2])

-- @include inbox
-- @include watchers

load_name(KEYS[1], KEYS[2], redis.call('HGET', KEYS[1], 's'))
local live = string.format('(%.0f', now)
local size, first_end, rows = 0, math.huge, {}
if lease_end > now then
  size, first_end, rows = 1, lease_end, {string.format('%.0f', lease_end), record}
end
if out > 0 then
  size = size + redis.call('ZCOUNT', tokens, live, FINISHED)
  local first = redis.call('ZRANGEBYSCORE', tokens, live, FINISHED, 'WITHSCORES', 'LIMIT', 0, 1)
  first_end = math.min(first_end, first[2] or math.huge)
end
if latest == fence and known == size then
  if wait_ms > 0 then
    watch(ARGV[1], string.match(ARGV[3], '^%S+'), wait_ms)
  end
  return 'waits ' .. struct.pack('<d', size > 0 and first_end - now or 0)
end
if size == 0 then
  return 'empty ' .. struct.pack('<d', fence)
end
if out > 0 then
  local others = redis.call('ZRANGEBYSCORE', tokens, live, FINISHED, 'WITHSCORES', 'LIMIT', 0, shown - #rows / 2)
  for i = 1, #others, 2 do
    rows[#rows + 1] = others[i + 1]
    rows[#rows + 1] = redis.call('HGET', state, others[i]) or ''
  end
end
return {'members', now, fence, size, rows}
