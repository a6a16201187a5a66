-- limit_acquire: be admitted under every rate of a limiter, or enter its queue.
--
-- KEYS queue waiting tombstones settings windows...
-- ARGV token request wants
-- PACK request <dddd wait_ms patience_us max_waiters ticket
-- PACK wants <ddBc0 follows cost rates
-- REPLY admitted at_us remaining
-- REPLY exceeded due_us remaining
-- REPLY refused due_us remaining
-- REPLY queued now_us position due_us ticket
-- REPLY full length
-- REPLY more
-- REPLY rates numbers
-- REPLY finished
-- ALONE admitted now_us 0
--
-- wait_ms is the wait-lease, which every call renews.
-- patience_us is how long a newcomer waits at most: it is refused if it is certain to take longer, and if it is 0. One
--   with less than 0 is admitted whatever it exceeds. `exceeded` says that others would not have been; a window that
--   has twice its limit does not store it.
-- ticket is 0 at first, or below that a head start in microseconds, and then that of the first reply `queued`. A
--   newcomer's is the time, or one more than that of the last waiter, less its head start. A token that the queue has
--   lost enters it by its ticket: before all that came later, and however many wait.
-- wants is all that a record has behind its mark, as lib/turns.lua says: follows, cost, rates, and who requests it.
--   follows is 1 if the rates are not the client's own: an earlier reply `rates` has told them. Each cost is at most the
--   limit. The rates are limit and per_ms each, in the order of `windows`, as doubles; of a limiter with metrics behind
--   them `;`, and the metrics, separated by commas: empty for the metric of the rate before.
-- due_us is the time from now until it and the first waiter may fit, and no pause keeps them out; of a newcomer that
--   is refused also the time that all before it take at least. remaining is what the tightest rate admits after this. Of a
--   limiter with metrics, the replies that say it, and `queued`, end with what each rate admits but for a pause.
-- more: 500 admissions that have lapsed were dropped, and it may fit when the others are; or waiters that are gone were
--   dropped, and others may be gone as well: send it again.
-- rates: the numbers of others that are set, as `wants` has them, or none: then none are set any more. Send it again
--   with those, or with the client's own. Nothing has changed; a waiter keeps its place for its wait-lease.
--
-- TWICE the same admission, for as long as one of its windows has it, and for 20 s if another script admitted it and its
--   message was lost; a waiter finds its place. One that exceeds is
--   counted once, and may be told that it was admitted.
-- LATE after it was settled with 0, or after a settling that knows of copies, the token has a tombstone: `finished`,
--   and nothing changes.
-- MEMORY the first write of every path is one that is refused at maxmemory; only a waiter that is in the queue already
--   goes on, since it gives up more than it takes.

-- @include clock

local queue, waiting, tombstones, settings = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, wants = ARGV[1], ARGV[3]
local wait_ms, patience_us, max_waiters, ticket = struct.unpack('<dddd', ARGV[2])
local follows, cost, rates = struct.unpack('<ddBc0', wants)
local there = redis.call('EXISTS', queue, tombstones, settings)

-- @include settings
-- @include window

local is_busy, served_until = there > 1, nil
if there > 0 then
  local over_until
  over_until, served_until = unpack(redis.call('ZMSCORE', tombstones, token, '!' .. token))
  if over_until then
    return 'finished '
  end
  is_busy = is_busy or redis.call('EXISTS', queue, settings) > 0 -- tombstones alone keep no one waiting
end
if is_busy then
  load_settings()
end
local place = is_busy and redis.call('ZSCORE', queue, token)
if place then
  redis.call('HDEL', waiting, '') -- changes nothing, passes at maxmemory, and so does the rest
end
local costs = metrics and metrics.costs_of(wants) or {cost, cost, cost, cost}
local admitted_at = load_windows(token, costs)
local others_count = set_rates and set_rates ~= rates or follows == 1 and not set_rates
if admitted_at then
  if not others_count then
    admit(costs, now) -- to windows that do not have it: evicted, or left out by a script that was cut off
  end
  return 'admitted ' .. struct.pack('<dd', admitted_at, remaining()) .. (metrics and metrics.rests() or '')
elseif others_count then
  return {'rates', set_rates or ''}
elseif served_until then -- and its message was lost
  local at_us = served_until - REPEAT_MS * 1000
  return 'admitted ' .. struct.pack('<dd', at_us, remaining()) .. (metrics and metrics.rests() or '')
end
if not is_busy and ticket == 0 then
  -- The short way, without what a queue needs.
  if fits(costs) then
    admit(costs, now)
    return 'admitted ' .. struct.pack('<dd', now, remaining()) .. (metrics and metrics.rests() or '')
  elseif patience_us == 0 and not lapsed_left then
    return 'refused ' .. struct.pack('<dd', due(costs) - now, remaining()) .. (metrics and metrics.rests() or '')
  end
end

-- @include inbox
-- @include over
-- @include turns

local function new_ticket(length)
  local last = length > 0 and tonumber(redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]) or 0
  return math.max(1, math.max(now, last + 1) + ticket)
end

if ticket > 0 and not place then
  enter_queue(token, ticket, wants, wait_ms)
  place = ticket
elseif is_busy and not place then
  redis.call('ZADD', queue, 'XX', 0, '') -- changes nothing; no newcomer gets past maxmemory by serving others
  local length = ticket < 0 and redis.call('ZCARD', queue) or 0
  if length > 0 and length < max_waiters then
    place = new_ticket(length)
    enter_queue(token, place, wants, wait_ms)
  end
end
if set_rates then
  keep_settings(KEPT_MS - 86400000, KEPT_MS) -- written once a day
end
local is_first, due_first, goes_on = true, now, false
if is_busy then
  is_first, due_first, goes_on = serve(token, false)
end
if patience_us < 0 and not (is_first and fits(costs)) then
  local due_us = math.max(due_first, due(costs)) - now
  admit(costs, now, nil, 2)
  return 'exceeded ' .. struct.pack('<dd', due_us, remaining()) .. (metrics and metrics.rests() or '')
end
if is_first and fits(costs) then
  if place then
    leave_queue(token)
  end
  admit(costs, now)
  local left, rests = remaining(), metrics and metrics.rests() or ''
  if place then
    serve(nil, true)
  end
  return 'admitted ' .. struct.pack('<dd', now, left) .. rests
elseif goes_on or is_first and lapsed_left then
  return 'more '
end

local due_us, position = math.max(due_first, due(costs)) - now, nil
if place then
  ticket = place
else
  position = is_busy and redis.call('ZCARD', queue) or 0
  local least_us = due_us
  for i, window in ipairs(windows) do
    -- Those before it cost 1 each at least, unless there are metrics; and a period has a limit.
    local periods = math.ceil(((metrics and 0 or position) + costs[i]) / window.limit) - 1
    least_us = math.max(least_us, periods * window.per_ms * 1000)
  end
  local is_full = position >= max_waiters
  if position > 0 and (is_full or least_us > math.max(patience_us, due_us)) and evict_waiters() then
    return 'more '
  elseif patience_us == 0 or least_us > patience_us then
    return 'refused ' .. struct.pack('<dd', least_us, remaining()) .. (metrics and metrics.rests() or '')
  elseif is_full then
    return 'full ' .. struct.pack('<d', position)
  end
  local is_ahead = ticket < 0
  ticket = new_ticket(position)
  position = not is_ahead and position or nil
end
enter_queue(token, ticket, wants, wait_ms, place, is_first and now + due_us)
position = position or redis.call('ZRANK', queue, token)
return 'queued ' .. struct.pack('<dddd', now, position, due_us, ticket) .. (metrics and metrics.rests() or '')
