-- items: what calls leave to the run of a debounced name, each until a run has done it.
--
-- USES items queue
-- GIVES QUEUED keep_items
--
-- The hash `items` has each item by the token of its call, behind the time of its arrival and a space; and under an empty
-- field the time at which the hash was made, by which a caller sees that the server has lost all items.
--
-- The sorted set `queue` has the token of each item, by when a run may take it. Before it is taken that is QUEUED plus the
-- time of its arrival, which is below zero, whatever the clock does; while a run has it, the time at which the run counts
-- as dead. Each run has a time of its own, and is there as well: as `!` and its token.

local QUEUED, WEEK_MS = -4503599627370496, 604800000 -- -2^52

local function keep_items()
  redis.call('PEXPIRE', items, WEEK_MS)
  redis.call('PEXPIRE', queue, WEEK_MS)
end
