-- budget_settle: let a hold count for what it really cost; 0 gives it back.
--
-- KEYS tombstones accounts...
-- ARGV token terms definition
-- PACK terms <ddddddd amount copies charge begin_us end_us limit reserved_us
-- REPLY settled uncharged
-- REPLY period now_us
-- ALONE settled 0
--
-- The keys, the period, the limit and the definition are as in budget_reserve. copies is 1 if a copy of the reserve
--   may still arrive.
-- uncharged is the sum of 2^(i - 1) over the accounts that have no hold of this token, and were not charged: it has
--   lapsed, the server has lost it, or the call was executed before. charge is such a sum: these accounts are
--   charged, too, once. So a caller sends charge 0 first, and then what was left uncharged, if no copy of the first
--   call can have had the holds. An amount of 0 leaves nothing to charge.
-- The amount may be above what was held, and above the limit: then nothing fits until the period ends.
-- What was held in an earlier period, at reserved_us, is settled there, and is forgotten where that is not the last
--   one. Where an account has to begin a period, the reply may be `period`.
--
-- TWICE the second time there is no hold, uncharged has all accounts, and nothing changes; with a charge the second
--   time has the reply of the first.
-- LATE as twice. With copies, a reserve that arrives after it holds nothing.
-- MEMORY the first write is a HDEL, which passes at maxmemory, and so does the rest.
-- CUT holds are emptied in all accounts before any is dropped, and the first account drops last: a copy completes it.
--   Of an account that had no hold the copy says nothing, and its caller would not charge it in any case.

-- @include clock

local tombstones, token, definition = KEYS[1], ARGV[1], ARGV[3]
local amount, copies, charge, begin_us, end_us, limit, reserved_us = struct.unpack('<ddddddd', ARGV[2])

-- @include account
-- @include over

-- What is spent and held of a period, with the amount in place of a hold. A hold of a later period counts as spent:
-- the clock was ahead.
local function settled_in(begin_us, spent, held, hold)
  local its_begin_us, its_amount = struct.unpack('<dd', hold)
  if its_begin_us == begin_us then
    return spent + amount, held - its_amount
  end
  return math.max(0, spent - its_amount) + amount, held
end

-- The state of a period that is over, with the amount in place of a hold, or without a hold charged.
local function past_with(state, hold)
  local past = {struct.unpack(STATE, state)}
  if hold then
    past[3], past[4] = settled_in(past[1], past[3], past[4], hold)
  else
    past[3] = past[3] + amount
  end
  return struct.pack(STATE, unpack(past, 1, 7))
end

local field, plans, uncharged = 't:' .. token, {}, 0
local charges = charge > 0 and not redis.call('ZSCORE', tombstones, '+' .. token)
local goes_on = false -- whether a script that was cut off has begun this
for i = 1, (#KEYS - 1) / 3 do
  local account = read_account(3 * i - 1, token)
  if account.hold == '' then
    goes_on = goes_on or i == 1
    plans[i] = {key = account.key, ends = account.ends, end_us = account.end_us}
  elseif account.hold and #account.hold == 16 then
    account.spent, account.held = settled_in(account.begin_us, account.spent, account.held, account.hold)
    plans[i] = {key = account.key, ends = account.ends, writes = account}
  else
    local past = redis.call('HMGET', account.past, 's', field)
    if past[1] and past[2] and #past[2] == 16 then
      plans[i] = {key = account.past, ends = account.ends, past = past_with(past[1], past[2])}
    elseif past[2] == '' then
      goes_on = goes_on or i == 1
      plans[i] = {key = account.past, ends = account.ends}
    elseif amount > 0 and charges and math.floor(charge / 2 ^ (i - 1)) % 2 == 1 then
      if not account.is_there and not enter_period(account, begin_us, end_us) then
        return 'period ' .. struct.pack('<d', now)
      end
      if reserved_us >= account.begin_us then
        account.spent, account.told = account.spent + amount, limit
        account.definition = account.definition or definition
        plans[i] = {key = account.key, ends = account.ends, writes = account}
      elseif past[1] and reserved_us >= struct.unpack('<d', past[1]) then
        plans[i] = {key = account.past, ends = account.ends, past = past_with(past[1])}
      end
    elseif amount > 0 and charge == 0 and not goes_on then
      uncharged = uncharged + 2 ^ (i - 1)
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
if charge > 0 then
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
