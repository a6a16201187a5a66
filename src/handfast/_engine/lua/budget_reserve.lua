-- budget_reserve: hold an amount in every account, or in none.
--
-- KEYS tombstones accounts...
-- ARGV token terms definition
-- PACK terms <ddddd amount ttl_ms begin_us end_us limit
-- REPLY reserved left now_us
-- REPLY exceeded number spent held limit end_us
-- REPLY period now_us
-- REPLY differs number definition
-- REPLY more
-- REPLY finished
-- ALONE reserved 0 now_us
--
-- accounts has the three keys of each account, see lib/account.lua. begin_us and end_us are the period as the caller
--   believes, and definition describes it. limit counts where none is set. With ttl_ms the amount is given back after
--   so long; 0 holds it until the period ends.
-- left is the least that is left in an account. number counts accounts from 1.
-- `period`: an account has to begin a period, and the caller's does not have now_us: send the call again with the
--   period of now_us. `differs`: the account has begun its period with another definition. `more`: 100 holds have
--   lapsed, others are left, and the amount does not fit yet: send the call again.
--
-- TWICE the same hold, and the same answer.
-- LATE after its settlement with `copies` it is `finished`, and holds nothing.
-- MEMORY the first write is a HSET or a ZADD, refused at maxmemory.
-- CUT a copy completes it account by account. Where one refuses then, the caller settles with 0.

-- @include clock

local tombstones, token, definition = KEYS[1], ARGV[1], ARGV[3]
local amount, ttl_ms, begin_us, end_us, limit = struct.unpack('<ddddd', ARGV[2])

-- @include account

-- Whether a copy of this call has held the amount in a period that is over.
local function is_held_before(account)
  if account.hold then
    return now >= account.end_us
  elseif not account.is_there then
    return account.was_held
  end
  return now < account.begin_us + REPEAT_MS * 1000 and redis.call('HEXISTS', account.past, 't:' .. token) == 1
end

if redis.call('ZSCORE', tombstones, token) then
  return 'finished '
end
local accounts, left = {}, math.huge
for at = 2, #KEYS, 3 do
  local account, i = read_account(at, token), #accounts + 1
  if account.definition ~= definition and now < account.end_us then
    return {'differs', i, account.definition}
  elseif account.hold == '' then
    return 'finished '
  end
  account.is_done = is_held_before(account)
  if not account.is_done then
    if not enter_period(account, begin_us, end_us) then
      return 'period ' .. struct.pack('<d', now)
    end
    drop_lapsed(account)
  end
  account.definition, account.told = definition, limit
  local most = account.limit < 0 and limit or account.limit
  if not account.hold and not account.is_done then
    if account.spent + account.held + amount > most then
      if account.lapsed_left then
        return 'more '
      end
      return 'exceeded ' .. struct.pack('<ddddd', i, account.spent, account.held, most, account.end_us)
    end
    account.held = account.held + amount
  end
  left = math.min(left, math.max(0, most - account.spent - account.held))
  accounts[i] = account
end
for _, account in ipairs(accounts) do
  if ttl_ms > 0 and not account.is_done then
    local ends_us = now + ttl_ms * 1000
    account.soonest_us = account.soonest_us ~= 0 and math.min(account.soonest_us, ends_us) or ends_us
    if account.hold then -- a copy does not prolong it
      redis.call('ZADD', account.ends, 'NX', ends_us, token)
    else -- first: a token without a hold is passed over
      redis.call('ZADD', account.ends, ends_us, token)
    end
    outlive(account.ends, account.end_us)
  end
  if account.hold or account.is_done then -- a script that was cut off may have left it out
    outlive(account.key, account.end_us)
  else
    write_account(account, 't:' .. token, struct.pack('<dd', account.begin_us, amount))
  end
end
return 'reserved ' .. struct.pack('<dd', left, now)
