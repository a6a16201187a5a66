-- === microseconds
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
return redis.call('HSET', KEYS[1], 'now', 'at ' .. now) --! number-as-text
-- === by tostring
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
return tostring(now + 60000000) --! number-as-text
-- === by %s
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
return string.format('%d %s', 1, now) --! number-as-text
-- === in a list
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
return table.concat({'now', now}, ' ') --! number-as-text
-- === given to a function
local time = redis.call('TIME')
local function show(at)
  return 'at ' .. at --! number-as-text
end
return show(time[1] * 1000000 + time[2])
-- === a fraction
local count = redis.call('SCARD', KEYS[1])
return 'about ' .. count / 3 --? number-as-text
-- === with a format
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
return string.format('%.0f', now) .. ('%d'):format(now)
-- === small enough, or not known
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local since = time[1] * 1000000 + time[2] - tonumber(ARGV[1])
return now_ms .. ' ' .. since .. ' ' .. redis.call('SCARD', KEYS[1])
-- === a text to begin with
local time = redis.call('TIME')
return time[1] .. '.' .. time[2]
-- === passed as it is: the server writes 17 digits
local time = redis.call('TIME')
return redis.call('SET', KEYS[1], time[1] * 1000000 + time[2])
-- === calculated with, whatever the sign
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local left = -now .. '' --! number-as-text
return left .. now % 1000
-- === as a part of JSON
local time = redis.call('TIME')
return cjson.encode({now = time[1] * 1000000 + time[2]}) --! number-as-text
-- === %s for a text
return string.format('%s %d%%', ARGV[1], 7)
-- === how long it took, and a little earlier
local before, behind = redis.call('TIME'), redis.call('TIME')
local from, to = before[1] * 1000000 + before[2], behind[1] * 1000000 + behind[2]
return (to - from) .. 'us, until ' .. (to - 1000) --! number-as-text
-- === powers
return 'v' .. 2 ^ 53 --! number-as-text
-- === powers by name
return tostring(math.pow(10, 16)) --! number-as-text
-- === a text that is a large number
return 'v' .. tonumber('12345678901234567') --! number-as-text
-- === more digits than are written
return 'v' .. 12345678.123456789 --? number-as-text
-- === a constant
return 'v' .. math.pi --? number-as-text
-- === the smaller of two
return 'v' .. math.min(2 ^ 53, 2 ^ 60) --! number-as-text
-- === small powers, and numbers that are written whole
return 'v' .. 2 ^ 10 .. math.min(5, 2 ^ 53) .. 0.5 .. 1.5e-10 .. tonumber('12')
