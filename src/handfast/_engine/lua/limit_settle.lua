-- limit_settle: let an admission count for what it really cost; or with 0 undo it, and leave the queue.
--
-- KEYS queue waiting tombstones settings windows...
-- ARGV token costs rates changes...
-- PACK costs <ddd cost new_cost copies
-- REPLY settled more
-- ALONE settled 0
--
-- cost is what it counts for until now; new_cost is 0 to take it back. Of a limiter with metrics cost is 0, new_cost 1 unless
--   it is taken back, and one more argument has old and new cost for each window, as doubles. copies is 1 if its acquire
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

local costs, new_costs = {cost, cost, cost, cost}, {new_cost, new_cost, new_cost, new_cost}
local is_less = new_cost < cost
if metrics then
  for i = 1, #KEYS - 4 do
    costs[i], new_costs[i] = struct.unpack('<dd', ARGV[4], 16 * i - 15)
    is_less = is_less or new_costs[i] < costs[i]
  end
end
load_settings()
local was_first = redis.call('ZRANGE', queue, 0, 0)[1] == token
leave_queue(token)
if new_cost == 0 or copies == 1 then
  remember(token)
end
local admitted_at = load_windows(token, costs)
change(token, costs, new_cost > 0 and new_costs or nil)
local _, _, goes_on = serve(nil, was_first or admitted_at and is_less)
return 'settled ' .. struct.pack('<d', (lapsed_left or goes_on) and 1 or 0)
