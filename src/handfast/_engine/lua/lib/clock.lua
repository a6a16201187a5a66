-- clock: the server's time in microseconds, the one clock on which all leases of all clients are measured.
--
-- USES
-- GIVES now

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
