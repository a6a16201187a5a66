-- account: the spent and the held sum of a budget in a period, and the holds.
--
-- USES now
-- GIVES STATE read_hash read_account enter_period drop_lapsed write_account outlive
--
-- An account has three keys. The hash `account` has these fields:
--
--   s        begin_us end_us spent held limit told soonest_us, as doubles. limit is -1 unless one is set, and told
--            that of the latest reserve; soonest_us is when the first hold with a TTL lapses, 0 without one
--   d        the definition: period, zone and begin
--   last     the last change of the limit: its time in microseconds as a double, then as text: what by why
--   t:TOKEN  a hold: the begin of its period, and its amount, as doubles. `-` once it has lapsed and the empty text
--            once it is settled, until the script that did so drops the field
--
-- `past` is that hash of the period before, so that a late settlement changes nothing of this period. The sorted set
-- `ends` has the tokens of holds with a TTL.

local STATE = '<ddddddd'
local KEPT_MS = 32 * 86400000 -- how long an account outlives its period

-- Read one of the hashes of the account whose keys begin there, with the hold of a token.
local function read_hash(key, at, token)
  local account = {key = key, past = KEYS[at + 1], ends = KEYS[at + 2], token = token}
  local state
  state, account.definition, account.hold = unpack(redis.call('HMGET', key, 's', 'd', 't:' .. token))
  account.is_there, account.hold = state, account.hold ~= '-' and account.hold
  if state and #state ~= 56 then
    error('stored in ' .. state)
  end
  local numbers = {struct.unpack(STATE, state or struct.pack(STATE, 0, 0, 0, 0, -1, 0, 0))}
  account.begin_us, account.end_us, account.spent, account.held = unpack(numbers, 1, 4)
  account.limit, account.told, account.soonest_us = unpack(numbers, 5, 7)
  return account
end

-- Read the account whose keys begin there. Where it is missing, it is new, or a script was cut off behind its RENAME.
local function read_account(at, token)
  local account = read_hash(KEYS[at], at, token)
  if not account.is_there then
    local before = read_hash(KEYS[at + 1], at, token)
    account.definition, account.limit, account.was_held = before.definition, before.limit, before.hold
    account.begin_us, account.end_us = before.begin_us, before.end_us
    account.spent, account.held = before.spent, before.held
  end
  return account
end

-- Have the account count in the period of this moment: in its own until that ends, whatever the caller believes; then
-- in the caller's. Returns false if the caller's does not have this moment.
local function enter_period(account, begin_us, end_us)
  if now >= account.begin_us and now < account.end_us then
    return true
  elseif now < begin_us or now >= end_us then
    return false
  elseif now < account.begin_us then -- the clock was ahead: its sums count now, and are given back no more
    local past = redis.call('HGET', account.past, 's')
    local _, past_end_us, past_spent, past_held = struct.unpack('<dddd', past or string.rep('\0', 32))
    account.spent = account.spent + account.held + (past_end_us > now and past_spent + past_held or 0)
    account.begin_us = begin_us
  else
    account.rolls, account.spent, account.hold = account.is_there, 0, false
    account.begin_us = math.max(begin_us, account.end_us)
  end
  account.enters, account.end_us, account.held, account.soonest_us = true, end_us, 0, 0
  return true
end

local function state_of(account)
  local period = struct.pack('<dddd', account.begin_us, account.end_us, account.spent, account.held)
  return period .. struct.pack('<ddd', account.limit, account.told, account.soonest_us)
end

-- Give back the holds whose TTL is over, a hundred at most.
local function drop_lapsed(account)
  if account.soonest_us == 0 or account.soonest_us > now then
    return
  end
  local tokens = redis.call('ZRANGEBYSCORE', account.ends, '-inf', now, 'LIMIT', 0, 100)
  local fields, writes, dropped = {}, {}, {}
  for i, token in ipairs(tokens) do
    fields[i] = 't:' .. token
  end
  local holds = tokens[1] and redis.call('HMGET', account.key, unpack(fields)) or {}
  for i, hold in ipairs(holds) do
    if hold == '-' then -- by a script that was cut off
      dropped[#dropped + 1] = fields[i]
    elseif hold and #hold == 16 then
      local its_begin_us, amount = struct.unpack('<dd', hold)
      if its_begin_us == account.begin_us then -- else it counts as spent, until it is settled
        account.held = account.held - amount
        writes[#writes + 1] = fields[i]
        writes[#writes + 1] = '-'
        dropped[#dropped + 1] = fields[i]
        account.hold = tokens[i] ~= account.token and account.hold
      end
    end
  end
  -- A copy of a script that is cut off here finds the tokens again, until all is done.
  redis.call('HSET', account.key, 's', state_of(account), unpack(writes))
  if dropped[1] then
    redis.call('HDEL', account.key, unpack(dropped))
  end
  if tokens[1] then
    redis.call('ZREM', account.ends, unpack(tokens))
  end
  account.lapsed_left = #tokens == 100
  if not account.lapsed_left then
    local later = redis.call('ZRANGE', account.ends, 0, 0, 'WITHSCORES')[2]
    account.soonest_us = tonumber(later or 0)
    redis.call('HSET', account.key, 's', state_of(account))
  end
end

-- Have a key of an account live for longer than its period.
local function outlive(key, end_us)
  redis.call('PEXPIRE', key, math.ceil((end_us - now) / 1000) + KEPT_MS)
end

-- Write the account in one step, with one more field. In a new period the former hash becomes that of the past.
local function write_account(account, field, value)
  if not account.enters then
    redis.call('HSET', account.key, 's', state_of(account), field, value)
    return
  end
  local last = redis.call('HGET', account.is_there and account.key or account.past, 'last')
  if account.rolls then
    redis.call('HSET', account.key, 's', account.is_there) -- refused at maxmemory, as every reserve is
    redis.call('RENAME', account.key, account.past)
  end
  local fields = {'s', state_of(account), 'd', account.definition, field, value}
  if last and field ~= 'last' then
    fields[7], fields[8] = 'last', last
  end
  redis.call('HSET', account.key, unpack(fields))
  outlive(account.key, account.end_us)
end
