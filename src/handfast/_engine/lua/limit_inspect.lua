-- limit_inspect: read how full the windows of a limiter are, and how many wait. Changes nothing.
--
-- KEYS queue waiting settings windows...
-- ARGV follows rates
-- REPLY state now_us waiting paused_us last used_and_reset_us
-- REPLY rates numbers
--
-- follows and rates are as in limit_acquire, and so is the reply `rates`: others count. waiting leaves out those of the
-- first 1,000 whose wait-lease is over: they are dead, and still there. last is the field of
-- lib/settings.lua, or the empty text. used_and_reset_us lists two numbers for each of them: what is used of it, and the time
-- from now until its window is empty if no one else is admitted. paused_us is how long a pause still lasts.
--
-- TWICE, LATE and MEMORY it only reads.

-- @include clock

local queue, waiting, settings, follows, rates = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local shown = {}
local MAX_LOOKED = 1000 -- waiters

-- @include settings

local function costs_of(members)
  local sum = 0
  for _, member in ipairs(members) do
    sum = sum + string.match(member, '%d+$')
  end
  return sum
end

load_settings()
if set_rates and set_rates ~= rates or follows == '1' and not set_rates then
  return {'rates', set_rates or ''}
end
for k = 4, #KEYS do
  local key, _, per_ms = KEYS[k], struct.unpack('<dd', rates, 16 * (k - 4) + 1)
  local sum = redis.call('ZSCORE', key, '=')
  local used = sum and -sum or costs_of(redis.call('ZRANGE', key, 0, -1))
  local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  local over_at = now - per_ms * 1000
  used = used - costs_of(redis.call('ZRANGEBYSCORE', key, '(0', over_at))
  shown[#shown + 1] = used
  shown[#shown + 1] = used > 0 and newest - over_at or 0
end
local count, last = redis.call('ZCARD', queue), redis.call('HGET', settings, 'last') or ''
for _, token in ipairs(redis.call('ZRANGE', queue, 0, MAX_LOOKED - 1)) do
  local record = redis.call('HGET', waiting, token)
  if not record or struct.unpack('<d', record) < now then
    count = count - 1
  end
end
return {'state', now, count, math.max(0, paused_until - now), last, shown}
