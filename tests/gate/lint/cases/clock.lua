-- === a clock that is not there
return redis.call('SET', KEYS[1], os.time()) --! clock
-- === the caller's, by name
-- KEYS window
-- ARGV now
--?^ clock
return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[1])
-- === the caller's, by a local's name
local now_ms = tonumber(ARGV[1]) --? clock
return redis.call('SET', KEYS[1], now_ms)
-- === the server's
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
return redis.call('SET', KEYS[1], math.floor(now))
-- === the time of an event
-- KEYS events
-- ARGV happened_at
return redis.call('ZADD', KEYS[1], ARGV[1], 'x')
