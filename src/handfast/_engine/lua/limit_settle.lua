-- limit_settle: let an admission count for what it really cost; or with 0 undo it, and leave the queue.
--
-- KEYS queue waiting tombstones settings windows...
-- ARGV token costs rates
-- PACK costs <ddd cost new_cost copies
-- REPLY settled more
-- ALONE settled 0
--
-- cost is what it counts for until now. copies is 1 if its acquire
-- was sent more than once, so that one may still arrive. rates is as in limit_acquire.
-- more is 1 when 500 admissions that have lapsed were dropped, and others are left, or 100 waiters that are gone: send
--   it again.
-- A new cost may be above the limit: then no one is admitted until enough has lapsed.
--
-- TWICE the cost is set, never added: the second time there is no admission with the old one.
-- LATE (or early) with 0, or with copies, the token gets a tombstone in any case: an acquire that arrives after it
--   changes nothing.
-- MEMORY the first write is a HDEL, which passes at maxmemory, and so does the rest.

-- @include clock

local queue, waiting, tombstones, settings = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, rates = ARGV[1], ARGV[3]
local cost, new_cost, copies = struct.unpack('<ddd', ARGV[2])

-- @include settings
-- @include window
-- @include inbox
-- @include over
-- @include turns

load_settings()
local was_first = redis.call('ZRANGE', queue, 0, 0)[1] == token
leave_queue(token)
if new_cost == 0 or copies == 1 then
  remember(token)
end
local admitted_at = load_windows(token .. string.format(' %.0f', cost))
change(token, cost, new_cost)
local _, _, goes_on = serve(nil, was_first or admitted_at and new_cost < cost)
return 'settled ' .. struct.pack('<d', (lapsed_left or goes_on) and 1 or 0)
