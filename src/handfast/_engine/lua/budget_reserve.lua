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
--   believes; definition says in words which one it is. limit holds where none is set. With ttl_ms the amount is given back after that time; 0 holds it until the
--   period ends.
-- left is the least that is left in an account. number counts accounts from 1. Where an account needs a period and the caller's is not that of the
--   server's clock, the reply is `period`: send it again with the period of now_us. `differs`: the account has begun
--   its period with another definition. `more`: 100 holds have lapsed, others are left, and it does not fit yet: send it again.
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
local function is_held_before(one)
  if one.hold then
    return now >= one.end_us
  elseif not one.is_there then
    return one.was_held
  end
  return now < one.begin_us + REPEAT_MS * 1000 and redis.call('HEXISTS', one.past, 't:' .. token) == 1
end

if redis.call('ZSCORE', tombstones, token) then
  return 'finished '
end
local accounts, left = {}, 2 ^ 53
for i = 1, (#KEYS - 1) / 3 do
  local one = read_account(3 * i - 1, token)
  if one.definition and one.definition ~= definition and now < one.end_us then
    return {'differs', i, one.definition}
  elseif one.hold == '' then
    return 'finished '
  end
  one.is_done = is_held_before(one)
  if not one.is_done and not enter_period(one, begin_us, end_us) then
    return 'period ' .. struct.pack('<d', now)
  end
  drop_lapsed(one)
  one.definition, one.told = definition, limit
  local most = one.limit < 0 and limit or one.limit
  if not one.hold and not one.is_done then
    if one.spent + one.held + amount > most then
      if one.lapsed_left then
        return 'more '
      end
      return 'exceeded ' .. struct.pack('<ddddd', i, one.spent, one.held, most, one.end_us)
    end
    one.held = one.held + amount
  end
  left = math.min(left, math.max(0, most - one.spent - one.held))
  accounts[i] = one
end
for _, one in ipairs(accounts) do
  if ttl_ms > 0 and not one.is_done then
    local ends_us = now + ttl_ms * 1000
    one.soonest_us = one.soonest_us > 0 and math.min(one.soonest_us, ends_us) or ends_us
    if one.hold then -- a copy does not prolong it
      redis.call('ZADD', one.ends, 'NX', ends_us, token)
    else -- first: a token without a hold is passed over
      redis.call('ZADD', one.ends, ends_us, token)
    end
    outlive(one.ends, one.end_us)
  end
  if one.hold or one.is_done then -- a script that was cut off may have left it out
    outlive(one.key, one.end_us)
  else
    write_account(one, 't:' .. token, struct.pack('<dd', one.begin_us, amount))
  end
end
return 'reserved ' .. struct.pack('<dd', left, now)
