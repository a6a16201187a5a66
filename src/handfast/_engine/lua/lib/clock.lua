-- clock: the server's time in microseconds, the one clock on which all leases of all clients are measured.
--
-- USES
-- GIVES now

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
