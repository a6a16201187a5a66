-- budget_settle: let a hold count for what it really cost; 0 gives it back.
--
-- KEYS tombstones accounts...
-- ARGV token terms definition
-- PACK terms <ddddddd amount copies charge begin_us end_us limit reserved_us
-- REPLY settled uncharged
-- REPLY period now_us
-- ALONE settled 0
--
-- The keys, the period, the limit and the definition are as in budget_reserve. copies is 1 if a copy of the reserve may still arrive.
-- uncharged is how many accounts have no hold of this token, and were not charged: it has lapsed, the server has lost it,
--   or the call was executed before. With charge 1 these are charged, too, once. So a caller sends charge 0 first, and then 1
--   if no copy of the first call can have had the hold. An amount of 0 leaves nothing to charge.
-- The amount may be above what was held, and above the limit: then nothing fits until the period ends.
-- What was held in an earlier period, at reserved_us, is settled there, and is forgotten where that is not the last one. Where
--   an account has to begin a period, the reply may be `period`.
--
-- TWICE the second time there is no hold, uncharged counts the accounts, and nothing changes; with charge 1 the second time
--   has the reply of the first.
-- LATE as twice. With copies, a reserve that arrives after it holds nothing.
-- MEMORY the first write is a HDEL, which passes at maxmemory, and so does the rest.
-- CUT holds are emptied in all accounts before any is dropped, and the first account drops last: a copy completes it. Of an
--   account that had no hold the copy says nothing, and its caller would not charge it in any case.

-- @include clock

local tombstones, token, definition = KEYS[1], ARGV[1], ARGV[3]
local amount, copies, charge, begin_us, end_us, limit, reserved_us = struct.unpack('<ddddddd', ARGV[2])

-- @include account
-- @include over

-- The state of a period that is over, with what was spent in place of what was held.
local function settled_in(state, spent, held)
  local numbers = {struct.unpack(STATE, state)}
  numbers[3], numbers[4] = numbers[3] + spent, numbers[4] - held
  return struct.pack(STATE, unpack(numbers, 1, 7))
end

local field, plans, uncharged = 't:' .. token, {}, 0
local charges = charge == 1 and not redis.call('ZSCORE', tombstones, '+' .. token)
local goes_on = false -- whether a script that was cut off has begun this
for i = 1, (#KEYS - 1) / 3 do
  local one = read_account(3 * i - 1, token)
  if one.hold == '' then
    goes_on = goes_on or i == 1
    plans[i] = {key = one.key, ends = one.ends, end_us = one.end_us}
  elseif one.hold and #one.hold == 16 then
    local its_begin_us, held = struct.unpack('<dd', one.hold)
    if its_begin_us == one.begin_us then
      one.held, one.spent = one.held - held, one.spent + amount
    else -- the clock was ahead, and the hold counts as spent
      one.spent = math.max(0, one.spent - held) + amount
    end
    plans[i] = {key = one.key, ends = one.ends, writes = one}
  else
    local past = redis.call('HMGET', one.past, 's', field)
    if past[1] and past[2] and #past[2] == 16 then
      local _, held = struct.unpack('<dd', past[2])
      plans[i] = {key = one.past, ends = one.ends, past = settled_in(past[1], amount, held)}
    elseif past[2] == '' then
      goes_on = goes_on or i == 1
      plans[i] = {key = one.past, ends = one.ends}
    elseif amount > 0 and charges then
      if not one.is_there and not enter_period(one, begin_us, end_us) then
        return 'period ' .. struct.pack('<d', now)
      end
      if reserved_us >= one.begin_us then
        one.spent, one.definition, one.told = one.spent + amount, one.definition or definition, limit
        plans[i] = {key = one.key, ends = one.ends, writes = one}
      elseif past[1] and reserved_us >= struct.unpack('<d', past[1]) then
        plans[i] = {key = one.past, ends = one.ends, past = settled_in(past[1], amount, 0)}
      end
    elseif amount > 0 and charge == 0 and not goes_on then
      uncharged = uncharged + 1
    end
  end
end
redis.call('HDEL', KEYS[2], '') -- changes nothing, passes at maxmemory, and so does the rest
for i = 1, (#KEYS - 1) / 3 do
  local plan = plans[i]
  if plan and plan.writes then
    write_account(plan.writes, field, '')
  elseif plan and plan.past then
    redis.call('HSET', plan.key, 's', plan.past, field, '')
  elseif plan and plan.end_us then
    outlive(plan.key, plan.end_us) -- which the script that was cut off may have left out
  end
end
if copies == 1 then
  remember(token)
end
if charge == 1 then
  remember('+' .. token)
end
for i = (#KEYS - 1) / 3, 1, -1 do
  local plan = plans[i]
  if plan then
    if not plan.writes or plan.writes.soonest_us > 0 then
      redis.call('ZREM', plan.ends, token)
    end
    redis.call('HDEL', plan.key, field)
  end
end
return 'settled ' .. struct.pack('<d', uncharged)
