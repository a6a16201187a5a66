-- limit_pause: admit no one for a while; or end such a pause, and serve the queue.
--
-- KEYS queue waiting tombstones settings windows...
-- ARGV pause by rates
-- PACK pause <d pause_ms
-- REPLY paused more
-- ALONE paused 0
--
-- pause_ms of 0 ends the pause. A pause that lasts longer already stays as it is. by is the
--   label of the client, percent-encoded. rates is as in limit_acquire.
-- more is as in limit_settle.
--
-- The waiters keep their places, and are not told: the first one asks when it was to come, and learns the new time.
--
-- TWICE a pause lasts from the last time that it arrives, and no longer. To end one that has ended changes nothing.
-- LATE a pause that arrives after its end was asked for begins again, for at most its length.
-- MEMORY a pause is refused at maxmemory. To end one begins with a HDEL, which passes, and so does the rest.

-- @include clock

local queue, waiting, tombstones, settings = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local by, rates, cost = ARGV[2], ARGV[3], 0
local pause_ms = struct.unpack('<d', ARGV[1])

-- @include settings
-- @include window
-- @include inbox
-- @include over
-- @include turns

load_settings()
if pause_ms > 0 then
  local until_us = now + pause_ms * 1000
  if until_us >= paused_until then -- also if it is equal: a script that was cut off may have left out the TTL
    local last = note('pause', by, string.format('%.3f', pause_ms / 1000))
    redis.call('HSET', settings, 'paused_until', string.format('%.0f', until_us), 'last', last)
    keep_settings(pause_ms + 1000)
  end
  return 'paused ' .. struct.pack('<d', 0)
end
redis.call('HDEL', settings, '') -- changes nothing, passes at maxmemory, and so does the rest
if paused_until > 0 then
  redis.call('HSET', settings, 'last', note('resume', by, '')) -- first: a script that was cut off is sent again
  redis.call('HDEL', settings, 'paused_until')
end
paused_until = 0
load_windows('')
local _, _, goes_on = serve(nil, true)
return 'paused ' .. struct.pack('<d', (lapsed_left or goes_on) and 1 or 0)
