-- limit_reset: forget the admissions until now, and serve the queue.
--
-- KEYS queue waiting tombstones settings windows...
-- ARGV until rates
-- PACK until <d until_us
-- REPLY reset more
-- ALONE reset 0
--
-- until_us is the server's time in the reply of an earlier limit_inspect: later admissions count.
--   Where the clock was set back since the last admission, all admissions are forgotten.
-- rates is as in limit_acquire, more as in limit_settle.
--
-- A pause goes on, and so do rates that are set. An admission that is settled later has no window to change.
--
-- TWICE and LATE it forgets admissions until the same time, and no later admission.
-- MEMORY the first write is a HDEL, which passes at maxmemory, and so does the rest.
-- CUT a user who lacks a right is refused before the first write, see lib/rights.lua. Cut off behind a removal, that window
--   has no sum, and the next call adds it up; the other windows are as they were. Cut off behind that, the queue is not
--   served until the first waiter asks. The same call ends each of these.

-- @include clock

local queue, waiting, tombstones, settings = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local rates = ARGV[2]
local until_us = struct.unpack('<d', ARGV[1])

-- @include settings
-- @include window
-- @include inbox
-- @include over
-- @include turns
-- @include limit_rights

load_settings()
require_act_rights()
redis.call('HDEL', settings, '') -- changes nothing, passes at maxmemory, and so does the rest
load_windows(nil, nil, until_us)
local _, _, goes_on = serve(nil, true)
return 'reset ' .. struct.pack('<d', (lapsed_left or goes_on) and 1 or 0)
