-- === a tag that the header does not have
-- REPLY taken left
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'missing'} --! reply
end
return {'taken', redis.call('DECR', KEYS[1])}
-- === a field too many, and one too few
-- REPLY taken left
-- REPLY short missing
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'short'} --! reply
end
return {'taken', redis.call('DECR', KEYS[1]), 0} --! reply
-- === a promise that is not kept
-- REPLY taken left
-- REPLY short missing
--!^ reply
return {'taken', redis.call('DECR', KEYS[1])}
-- === a reply in words that the header does not describe
-- REPLY taken left
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0 --! reply
end
return {'taken', redis.call('DECR', KEYS[1])}
-- === the way past the last return
-- REPLY taken left
if redis.call('EXISTS', KEYS[1]) == 1 then --! reply
  return {'taken', redis.call('DECR', KEYS[1])}
end
-- === a function answers for the script
-- REPLY taken left
--!^ reply
local function take(key)
  return {'token', redis.call('DECR', key)} --! reply
end
return take(KEYS[1])
-- === that, mended
-- REPLY taken left
local function take(key)
  return {'taken', redis.call('DECR', key)}
end
return take(KEYS[1])
-- === one of two
-- REPLY taken left
-- REPLY short
local left = tonumber(redis.call('GET', KEYS[1])) or 0
return left > 0 and {'taken', left} or {'short'}
-- === in words, beside a tag
-- REPLY taken left
-- REPLY - nothing when there is none
if redis.call('EXISTS', KEYS[1]) == 1 then
  return {'taken', redis.call('DECR', KEYS[1])}
end
-- === errors need no REPLY line
-- REPLY taken left
if redis.call('EXISTS', KEYS[1]) == 0 then
  return redis.error_reply('NOKEY there is none')
elseif redis.call('TYPE', KEYS[1]).ok ~= 'string' then
  return {err = 'NOKEY it is something else'}
end
local left = redis.pcall('DECR', KEYS[1])
if type(left) == 'table' then
  return left
end
return {'taken', left}
-- === an unknown number of fields
-- REPLY members all
local found = redis.call('SMEMBERS', KEYS[1])
return {'members', unpack(found)}
-- === filled later
-- REPLY members first second
local answer = {'members'}
for _, member in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  answer[#answer + 1] = member
end
return answer
-- === in words only
-- REPLY - a list of ok and how many
return {'ok', redis.call('SCARD', KEYS[1])}
-- === all arms return
-- REPLY yes
-- REPLY no
if redis.call('EXISTS', KEYS[1]) == 1 then
  return {'yes'}
else
  return {'no'}
end
-- === several values from one call
-- REPLY parts first second
local function pair()
  return string.match(ARGV[1], '(%w+) (%w+)')
end
if ARGV[2] == '1' then
  return {'parts', string.match(ARGV[1], '(%w+) (%w+)')}
elseif ARGV[2] == '2' then
  return {'parts', pair()}
end
return {'parts', (pair())} --! reply
-- === an error at the end
-- REPLY yes
do
  if redis.call('EXISTS', KEYS[1]) == 1 then
    return {'yes'}
  end
  error('there is none')
end
-- === a loop that is left by a return
-- REPLY yes count
local count = 0
while true do
  count = count + 1
  if count > 3 then
    return {'yes', count}
  end
end
-- === a loop that is left
-- REPLY yes count
local count = 0
while true do --! reply
  count = count + 1
  if redis.call('LPOP', KEYS[1]) == false then
    break
  elseif count > 3 then
    return {'yes', count}
  end
end
