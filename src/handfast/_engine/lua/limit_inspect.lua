-- limit_inspect: read how full the windows of one or several limiters are, and how many wait. Changes nothing.
--
-- KEYS queue waiting settings windows...
-- ARGV periods more...
-- REPLY state now_us waiting paused_us last set_rates used_and_reset_us first_us first_rates
-- REPLY - of several limiters an array with such a reply for each
--
-- periods are those of the windows in milliseconds, as doubles. `more` are the periods of further limiters, whose keys
-- come after the windows in the same order.
--
-- waiting leaves out those of the first 1,000 whose wait-lease is over: they are dead, and still there. last is the field
-- of lib/settings.lua, or the empty text. paused_us is how long a pause still lasts. set_rates are the rates that are set,
-- limit and per_ms of each as doubles, or the empty text. used_and_reset_us lists two numbers for each window: the costs in
-- it, and the time from now until it is empty if no one else is admitted. first_us is when the first waiter came: its
-- ticket and its head start. first_rates are the rates under which it waits. They are 0 and the empty text if no one waits.
--
-- TWICE, LATE and MEMORY it only reads.

-- @include clock

local queue, waiting, settings = KEYS[1], KEYS[2], KEYS[3]
local MAX_LOOKED = 1000 -- waiters

-- @include settings

local function costs_of(members)
  local sum = 0
  for _, member in ipairs(members) do
    sum = sum + string.match(member, '%d+$')
  end
  return sum
end

-- The costs in a window, and the time from now until it is empty.
local function read_window(key, per_ms)
  local sum = redis.call('ZSCORE', key, '=')
  local used = sum and -sum or costs_of(redis.call('ZRANGE', key, 0, -1))
  local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  local over_at = now - per_ms * 1000
  used = used - costs_of(redis.call('ZRANGEBYSCORE', key, '(0', over_at))
  return used, used > 0 and newest - over_at or 0
end

-- Read the limiter whose keys begin behind this one. Returns its reply, and its last key.
local function inspect(last_key, periods)
  queue, waiting, settings = KEYS[last_key + 1], KEYS[last_key + 2], KEYS[last_key + 3]
  last_key = last_key + 3
  load_settings()
  local shown = {}
  for at = 1, #periods, 8 do
    last_key = last_key + 1
    local used, reset_us = read_window(KEYS[last_key], (struct.unpack('<d', periods, at)))
    shown[#shown + 1] = used
    shown[#shown + 1] = reset_us
  end
  local count, last = redis.call('ZCARD', queue), redis.call('HGET', settings, 'last') or ''
  local first_us, first_rates
  local found = count > 0 and redis.call('ZRANGE', queue, 0, MAX_LOOKED - 1, 'WITHSCORES') or {}
  for i = 1, #found, 2 do
    local record = redis.call('HGET', waiting, found[i])
    if not record or struct.unpack('<d', record) < now then
      count = count - 1
    elseif not first_us then
      local _, _, _, _, its_rates, start = struct.unpack('<ddddBc0', record)
      local ahead_us = string.match(record, ' ahead=(%d+)', start) or 0
      first_us, first_rates = found[i + 1] + ahead_us, its_rates
    end
  end
  local paused_us = math.max(0, paused_until - now)
  local first = {first_us or 0, first_rates or ''}
  return {'state', now, count, paused_us, last, set_rates or '', shown, unpack(first)}, last_key
end

if #ARGV == 1 then
  return (inspect(0, ARGV[1]))
end
local limiters, at = {}, 0
for i, periods in ipairs(ARGV) do
  limiters[i], at = inspect(at, periods)
end
return limiters
