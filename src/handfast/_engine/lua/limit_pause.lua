-- limit_pause: admit no one for a while; or end such a pause, and serve the queue.
--
-- KEYS queue waiting tombstones settings windows...
-- ARGV pause by why rates
-- PACK pause <dd pause_ms shown_us
-- REPLY paused left_us more
-- REPLY changed left_us
-- ALONE paused 0 0
--
-- pause_ms of 0 ends the pause; with a shown_us other than 0 only the pause that ends at that time: where another one is in
--   force, the reply is `changed`, and nothing is done. A pause that lasts longer already stays as it is. by is the label of
--   the client, percent-encoded, and why the reason, or the seconds: both are noted. rates is as in limit_acquire.
-- left_us is how long the pause lasts that is in force, or that was ended; 0 where there was none, and then the queue is
--   served all the same. more is as in limit_settle.
--
-- The waiters keep their places, and are not told: the first one asks when it was to come, and learns the new time.
--
-- TWICE a pause lasts from the last time that it arrives, and no longer. To end one that has ended changes nothing, and
--   left_us is 0.
-- LATE a pause that arrives after its end was asked for begins again, for at most its length. To end a pause ends one that
--   was set since; with a shown_us it does not.
-- MEMORY a pause is refused at maxmemory. To end one begins with a HDEL, which passes, and so does the rest.
-- CUT a user who lacks a right is refused before the first write, see lib/rights.lua. A pause that is cut off behind its
--   first write may lack the TTL, which the same call gives it. An end that is cut off behind its note has not ended the
--   pause: the same call does. Cut off behind that, the queue is not served until the same call comes, or the first waiter
--   asks.

-- @include clock

local queue, waiting, tombstones, settings = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local by, why, rates = ARGV[2], ARGV[3], ARGV[4]
local pause_ms, shown_us = struct.unpack('<dd', ARGV[1])

-- @include settings
-- @include window
-- @include inbox
-- @include over
-- @include turns
-- @include limit_rights

load_settings()
if pause_ms > 0 then
  local until_us = now + pause_ms * 1000
  if until_us >= paused_until then -- also if it is equal: a script that was cut off may have left out the TTL
    require_pause_rights()
    local last = note('pause', by, why)
    redis.call('HSET', settings, 'paused_until', string.format('%.0f', until_us), 'last', last)
    keep_settings(pause_ms + 1000)
  end
  return 'paused ' .. struct.pack('<dd', math.max(until_us, paused_until) - now, 0)
end
local left_us = math.max(0, paused_until - now)
if shown_us > 0 and left_us > 0 and paused_until ~= shown_us then
  return 'changed ' .. struct.pack('<d', left_us)
end
require_act_rights()
redis.call('HDEL', settings, '') -- changes nothing, passes at maxmemory, and so does the rest
load_windows() -- before the pause ends: Redis 6.2 may refuse this for a right
if paused_until > 0 then
  if left_us > 0 then
    redis.call('HSET', settings, 'last', note('resume', by, why)) -- first: a script that was cut off is sent again
  end
  redis.call('HDEL', settings, 'paused_until')
end
paused_until = 0
local _, _, goes_on = serve(nil, true)
return 'paused ' .. struct.pack('<dd', left_us, (lapsed_left or goes_on) and 1 or 0)
