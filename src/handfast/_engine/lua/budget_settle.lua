-- budget_settle: settle a hold with the cost of the call; 0 gives it back.
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
--   charged, too, once. So a caller sends charge 0 first, and then the uncharged sum, if no copy of the first
--   call can have had the holds. An amount of 0 leaves nothing to charge.
-- The amount may be above the hold, and above the limit: then nothing fits until the period ends.
-- A hold of an earlier period, from reserved_us, is settled there, and is forgotten where that is not the last period. Where an account has to begin a period, the reply may be `period`.
--
-- TWICE the second time there is no hold, uncharged has all accounts, and nothing changes; with a charge the second
--   time has the reply of the first.
-- LATE as twice. With copies, a reserve that arrives after it holds nothing.
-- MEMORY the first write is a HDEL, which passes at maxmemory, and so does the rest.
-- CUT holds are emptied in all accounts before any is dropped, and the last account drops first: a copy completes it.
--   Of an account that had no hold the copy says nothing, and its caller would not charge it in any case.

-- @include clock

local tombstones, token, definition = KEYS[1], ARGV[1], ARGV[3]
local amount, copies, charge, begin_us, end_us, limit, reserved_us = struct.unpack('<ddddddd', ARGV[2])

-- @include account
-- @include over

-- Have the amount in place of a hold. A hold of a later period counts as spent: the clock was ahead.
local function settle(account)
  local its_begin_us, held = struct.unpack('<dd', account.hold)
  if its_begin_us == account.begin_us then
    account.held, account.spent = account.held - held, account.spent + amount
  else
    account.spent = account.spent - held + amount
  end
end

local field, plans, uncharged = 't:' .. token, {}, 0
local charges = charge > 0 and not redis.call('ZSCORE', tombstones, '+' .. token)
local goes_on = false -- whether a script that was cut off has begun this
local bit = 1 -- that of an account, in the sums
for at = 2, #KEYS, 3 do
  local account = read_account(at, token)
  local past = not account.hold and read_hash(KEYS[at + 1], at, token)
  account = past and past.hold and past or account
  if account.hold == '' then
    goes_on = true
    plans[#plans + 1] = account
  elseif account.hold then
    settle(account)
    account.writes = true
    plans[#plans + 1] = account
  elseif amount > 0 and charge == 0 and not goes_on then
    uncharged = uncharged + bit
  elseif charges and math.floor(charge / bit) % 2 == 1 then
    if not account.is_there and not enter_period(account, begin_us, end_us) then
      return 'period ' .. struct.pack('<d', now)
    end
    account.definition, account.told = definition, limit
    account = reserved_us < account.begin_us and past or account
    if reserved_us >= account.begin_us and (account.is_there or account.enters) then
      account.spent, account.writes = account.spent + amount, true
      plans[#plans + 1] = account
    end
  end
  bit = 2 * bit
end
redis.call('HDEL', KEYS[2], '') -- changes nothing, passes at maxmemory, and so does the rest
for _, plan in ipairs(plans) do
  if plan.writes then
    write_account(plan, field, '')
  else
    outlive(plan.key, plan.end_us) -- which the script that was cut off may have left out
  end
end
if copies == 1 then
  remember(token)
end
if charge > 0 then
  remember('+' .. token)
end
for i = #plans, 1, -1 do
  if plans[i].soonest_us ~= 0 then
    redis.call('ZREM', plans[i].ends, token)
  end
  redis.call('HDEL', plans[i].key, field)
end
return 'settled ' .. struct.pack('<d', uncharged)
