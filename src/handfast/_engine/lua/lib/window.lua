-- window: what was admitted within the last period under each rate of a limiter.
--
-- USES now rates paused_until
-- GIVES windows metrics lapsed_left load_windows remaining fits admit change due
--
-- A window is a sorted set with the period of its rate in its name. Each admission is a member, `<token> <cost>`, whose
-- score is its time. The member `=` has the sum of all costs for its score, below zero: so it is the first one.
--
-- `costs` are those of one request, in the order of the windows: equal, unless the limiter has metrics. Then the names of
-- these stand behind the numbers of `rates`, and a cost may be 0: such a member is kept for a settling.
--
-- One command adds an admission and sets the sum. One command removes admissions and the sum, which is then written
-- again: a window without it is one whose script was cut off there, and is added up. A window has one key, so an
-- eviction takes all of it.
--
-- In a pause nothing fits: `paused_until` is its end, or 0.

local windows = {}
local metrics = #rates > 16 * (#KEYS - 4) and {}
local lapsed_left = false -- whether there is more that has lapsed than one call drops

-- @include costs

-- A window that is empty has no sum, and no key.
local function save_sum(window)
  if window.used > 0 or metrics and redis.call('EXISTS', window.key) == 1 then
    redis.call('ZADD', window.key, -window.used, '=')
  end
end

-- Read the windows, and drop admissions that have lapsed, or all until `until_us`. Returns when the token was admitted
-- for these costs, if one is given and a window has it.
local function load_windows(token, costs, until_us)
  local MAX_DROPPED = 500 -- of each window; the next call goes on (invariant 13)
  local NUMBERS = 16 -- bytes of a rate: limit and per_ms
  local member, cost, admitted_at = '', nil, nil
  for i = 1, #KEYS - 4 do
    local key, limit, per_ms = KEYS[4 + i], struct.unpack('<dd', rates, NUMBERS * (i - 1) + 1)
    if costs and costs[i] ~= cost then
      cost = costs[i]
      member = token .. string.format(' %.0f', cost)
    end
    local sum, at = unpack(redis.call('ZMSCORE', key, '=', member))
    local used = sum and -sum or costs_of(redis.call('ZRANGE', key, 0, -1))
    local window = {key = key, limit = limit, per_ms = per_ms, used = used, at = tonumber(at), member = member}
    if not sum then
      save_sum(window)
    end
    admitted_at = admitted_at or window.at
    local over_at = now - per_ms * 1000
    if until_us then
      local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
      over_at = newest and tonumber(newest) > now and '+inf' or math.max(over_at, until_us)
    end
    local lapsed = redis.call('ZCOUNT', key, '(0', over_at)
    if lapsed > 0 then
      if lapsed > MAX_DROPPED then
        lapsed, lapsed_left = MAX_DROPPED, true
      end
      redis.call('ZADD', key, 'XX', 0, '') -- changes nothing; no request gets past maxmemory by the removal below
      window.used = window.used - costs_of(redis.call('ZRANGE', key, 1, lapsed))
      redis.call('ZREMRANGEBYRANK', key, 0, lapsed)
      save_sum(window)
    end
    windows[i] = window
  end
  local is_whole = true -- also where it has lapsed, or may have before the clock was set back
  for _, window in ipairs(windows) do
    local has_lapsed = admitted_at and (admitted_at > now or admitted_at <= now - window.per_ms * 1000)
    window.has_it = window.at or has_lapsed
    is_whole = is_whole and window.has_it
  end
  if admitted_at and not is_whole then
    for i, window in ipairs(windows) do
      if not (window.at and window.at > now - window.per_ms * 1000) then
        window.has_it = window.used + costs[i] > window.limit -- it counts from now on, so it is added where it fits
      end
    end
  end
  return admitted_at
end

-- How much more the tightest rate admits.
local function remaining()
  local least = paused_until > now and 0 or math.huge
  for _, window in ipairs(windows) do
    least = math.min(least, window.limit - window.used)
  end
  return math.max(0, least)
end

-- Whether so much more fits under every rate.
local function fits(costs)
  if paused_until > now then
    return false
  end
  for i, window in ipairs(windows) do
    if window.used + costs[i] > window.limit then
      return false
    end
  end
  return true
end

-- Add an admission, of the token that was looked for or of another one, to every window that does not have it; if it may
-- exceed the limits, up to so many `times` each of them. A script that was cut off may have left out the TTL.
local function admit(costs, at, token, times)
  for i, window in ipairs(windows) do
    local used, member = window.used + costs[i], window.member
    if token then
      member = token .. string.format(' %.0f', costs[i])
    end
    if not window.has_it and not (times and used > times * window.limit) then
      window.used = used
      redis.call('ZADD', window.key, -used, '=', at, member)
    end
    redis.call('PEXPIRE', window.key, window.per_ms + 1000) -- a second more than it needs
  end
end

-- Let the admission that was looked for have other costs in every window that has it; or without `new_costs` take it
-- back. Both costs of a window count until the old one is gone.
local function change(token, costs, new_costs)
  for i, window in ipairs(windows) do
    local new_cost = new_costs and new_costs[i]
    if new_cost ~= costs[i] and window.at and window.at > now - window.per_ms * 1000 then
      local new_member = new_cost and token .. string.format(' %.0f', new_cost)
      if new_cost and not redis.call('ZSCORE', window.key, new_member) then
        window.used = window.used + new_cost
        redis.call('ZADD', window.key, -window.used, '=', window.at, new_member)
      end
      window.used = window.used - costs[i]
      redis.call('ZREM', window.key, '=', window.member)
      save_sum(window)
    end
    window.has_it = false
  end
end

-- What is later than now was admitted before the clock was set back: it counts from now on.
local function redate(window)
  local MAX_REDATED = 500 -- the next call goes on (invariant 13)
  local later = redis.call('ZRANGEBYSCORE', window.key, string.format('(%.0f', now), '+inf', 'LIMIT', 0, MAX_REDATED)
  local redated = {}
  for i, member in ipairs(later) do
    redated[2 * i - 1], redated[2 * i] = now, member
  end
  redis.call('ZADD', window.key, 'XX', unpack(redated))
end

-- The earliest time at which so much more may fit under every rate, after the pause: `now`, if it does. Where costs
-- differ and more than 100 admissions have to lapse before, it is too early, and the next call tells another time.
local function due(costs)
  local MAX_ADDED_UP = 100 -- (invariant 13)
  local when = math.max(now, paused_until)
  for i, window in ipairs(windows) do
    local excess, at = window.used + costs[i] - window.limit, nil
    if excess > 0 then
      if tonumber(redis.call('ZRANGE', window.key, -1, -1, 'WITHSCORES')[2]) > now then
        redate(window)
      end
      if not metrics and redis.call('ZCARD', window.key) - 1 == window.used then -- all costs are 1
        at = redis.call('ZRANGE', window.key, excess, excess, 'WITHSCORES')[2]
      else
        local oldest = redis.call('ZRANGE', window.key, 1, MAX_ADDED_UP, 'WITHSCORES')
        for j = 1, #oldest, 2 do
          excess, at = excess - cost_of(oldest[j]), oldest[j + 1]
          if excess <= 0 then
            break
          end
        end
      end
      when = math.max(when, math.min(at, now) + window.per_ms * 1000)
    end
  end
  return when
end

if metrics then
  -- The costs of a request: the word `costs` of its record.
  function metrics.costs_of(record)
    local costs = {}
    for cost in string.gmatch(string.match(record, ' costs=([%d,]+)'), '%d+') do
      costs[#costs + 1] = cost
    end
    return costs
  end

  -- How much more each rate admits but for a pause, packed.
  function metrics.rests()
    local texts = {}
    for i, window in ipairs(windows) do
      texts[i] = struct.pack('<d', math.max(0, window.limit - window.used))
    end
    return table.concat(texts)
  end
end
