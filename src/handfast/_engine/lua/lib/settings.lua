-- settings: what was set for all who use a limiter: a pause, and rates.
--
-- USES now settings
-- GIVES KEPT_MS paused_until set_rates load_settings note keep_settings
--
-- The hash `settings` has these fields:
--
--   paused_until  the end of a pause in microseconds
--   rates         limit and per_ms of each rate, as doubles: they count, whatever the requests bring
--   last          the last change: its time in microseconds as a double, then as text: what by why
--
-- The hash exists only where something was set. In another layout `paused_until` is the text `layout N`, see
-- lib/state.lua.

local KEPT_MS = 30 * 86400000 -- how long rates that were set outlive the last call
local paused_until, set_rates = 0, false

local function load_settings()
  local until_us
  until_us, set_rates = unpack(redis.call('HMGET', settings, 'paused_until', 'rates'))
  paused_until = tonumber(until_us or 0)
  if not paused_until then
    error('stored in ' .. until_us)
  end
end

-- What the field `last` says of a change.
local function note(what, by, why)
  return struct.pack('<d', now) .. what .. ' ' .. by .. ' ' .. why
end

-- Let the settings live for so long at least.
local function keep_settings(least_ms, ms)
  if redis.call('PTTL', settings) < least_ms then
    redis.call('PEXPIRE', settings, ms or least_ms)
  end
end
