-- limit_resize: set the rates of a limiter, whatever its clients bring, or none; and serve the queue.
--
-- KEYS queue waiting tombstones settings windows...
-- ARGV is_set by why rates
-- REPLY resized more
-- ALONE resized 0
--
-- is_set is 1; or 0 to have each request bring its own rates again: then rates and windows are those of the caller. by
--   is the label of the operator's client, percent-encoded, and why the rates as text: both are noted.
-- rates is as in limit_acquire, more as in limit_settle.
--
-- Waiters with other rates keep their places: the first one gets the message to come now, learns the rates that count,
--   and asks with those; the next one gets its message when that one is admitted.
--
-- TWICE the rates are set, never added to.
-- LATE it overrides what was set in between: the last to arrive counts.
-- MEMORY the first write is a HSET, which is refused at maxmemory. To set none begins with a HDEL, which passes, and so
--   does the rest.
-- CUT a user who lacks a right is refused before the first write, see lib/rights.lua. Cut off behind the first HSET, rates
--   that are set count, and may lack the TTL; rates that are removed count, and the note says that they do not. Cut off
--   behind that, the queue is not served until the first waiter asks. The same call ends each of these.

-- @include clock

local queue, waiting, tombstones, settings = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local by, why, rates = ARGV[2], ARGV[3], ARGV[4]

-- @include settings
-- @include window
-- @include inbox
-- @include over
-- @include turns
-- @include limit_rights

load_settings()
require_act_rights()
if ARGV[1] == '1' then
  redis.call('HSET', settings, 'rates', rates, 'last', note('resize', by, why))
  keep_settings(KEPT_MS)
  set_rates = rates
else
  redis.call('HDEL', settings, '') -- changes nothing, passes at maxmemory, and so does the rest
  if set_rates then
    redis.call('HSET', settings, 'last', note('resize', by, why)) -- first: a script that was cut off is sent again
    local pause_ms = math.ceil((paused_until - now) / 1000) + 1000
    redis.call('PEXPIRE', settings, math.max(math.floor(HOUR_US / 1000), pause_ms)) -- while it is there, calls read it
    redis.call('HDEL', settings, 'rates')
  end
  set_rates = false
end
load_windows()
local _, _, goes_on = serve(nil, true)
return 'resized ' .. struct.pack('<d', (lapsed_left or goes_on) and 1 or 0)
