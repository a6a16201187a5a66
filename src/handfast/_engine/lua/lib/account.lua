-- account: what was spent of a budget in a period, what is held, and the holds.
--
-- USES now
-- GIVES STATE read_account enter_period drop_lapsed write_account outlive
--
-- An account has three keys. The hash `account` has these fields:
--
--   s        begin_us end_us spent held limit told soonest_us, as doubles. limit is -1 unless one is set, and told that of
--            the latest caller; soonest_us is when the first hold with a TTL lapses, 0 without one
--   d        the definition: period, zone and begin
--   last     the last change of the limit: its time in microseconds as a double, then as text: what by why
--   t:TOKEN  a hold: the begin of its period, and its amount, as doubles. `-` once it has lapsed and the empty text once it
--            is settled, until the script that did so drops the field
--
-- `past` is that hash of the period before, so that a late settlement changes nothing of this period. The sorted set `ends`
-- has the tokens of holds with a TTL.

local STATE = '<ddddddd'
local KEPT_MS = 32 * 86400000 -- how long an account outlives its period

-- Read the account with that key, with the hold of a token. Its keys follow each other.
local function read_account(at, token)
  local one = {key = KEYS[at], past = KEYS[at + 1], ends = KEYS[at + 2], token = token}
  local state
  state, one.definition, one.hold = unpack(redis.call('HMGET', one.key, 's', 'd', 't:' .. token))
  one.is_there, one.hold = state, one.hold ~= '-' and one.hold
  if not state then -- new; or a script was cut off behind its RENAME
    state, one.definition, one.was_held = unpack(redis.call('HMGET', one.past, 's', 'd', 't:' .. token))
  end
  if not state then
    one.begin_us, one.end_us, one.spent, one.held, one.limit, one.told, one.soonest_us = 0, 0, 0, 0, -1, 0, 0
  elseif #state ~= 56 then
    error('stored in ' .. state)
  else
    one.begin_us, one.end_us, one.spent, one.held, one.limit, one.told, one.soonest_us = struct.unpack(STATE, state)
  end
  return one
end

-- Have the account count in the period of this moment: in its own until that ends, whatever the caller believes; then in
-- the caller's. Returns false if the caller's does not have this moment.
local function enter_period(one, begin_us, end_us)
  if now >= one.begin_us and now < one.end_us then
    return true
  elseif now < begin_us or now >= end_us then
    return false
  elseif now < one.begin_us then -- the clock was ahead: what was counted then counts now, and is given back no more
    local past = redis.call('HGET', one.past, 's')
    local _, past_end_us, past_spent, past_held = struct.unpack('<dddd', past or string.rep('\0', 32))
    one.spent = one.spent + one.held + (past_end_us > now and past_spent + past_held or 0)
    one.begin_us = begin_us
  else
    one.rolls, one.spent, one.hold = one.is_there, 0, false
    one.begin_us = math.max(begin_us, one.end_us)
  end
  one.enters, one.end_us, one.held, one.soonest_us = true, end_us, 0, 0
  return true
end

local function state_of(one)
  return struct.pack(STATE, one.begin_us, one.end_us, one.spent, one.held, one.limit, one.told, one.soonest_us)
end

-- Give back what is held by tokens whose TTL is over, a hundred at most.
local function drop_lapsed(one)
  if one.soonest_us == 0 or one.soonest_us > now then
    return
  end
  local tokens = redis.call('ZRANGEBYSCORE', one.ends, '-inf', now, 'LIMIT', 0, 100)
  local fields, writes = {}, {}
  for i, token in ipairs(tokens) do
    fields[i] = 't:' .. token
  end
  local holds = tokens[1] and redis.call('HMGET', one.key, unpack(fields)) or {}
  for i, hold in ipairs(holds) do
    if hold and #hold == 16 then
      local its_begin_us, amount = struct.unpack('<dd', hold)
      if its_begin_us == one.begin_us then
        one.held = one.held - amount
        writes[#writes + 1] = fields[i]
        writes[#writes + 1] = '-'
        one.hold = tokens[i] ~= one.token and one.hold
      end
    end
  end
  -- A copy of a script that is cut off here finds the tokens again, until all is done.
  redis.call('HSET', one.key, 's', state_of(one), unpack(writes))
  if tokens[1] then
    redis.call('HDEL', one.key, unpack(fields))
    redis.call('ZREM', one.ends, unpack(tokens))
  end
  one.lapsed_left = #tokens == 100
  if not one.lapsed_left then
    local later = redis.call('ZRANGE', one.ends, 0, 0, 'WITHSCORES')[2]
    one.soonest_us = tonumber(later or 0)
    redis.call('HSET', one.key, 's', state_of(one))
  end
end

-- Have a key of an account live for longer than its period.
local function outlive(key, end_us)
  redis.call('PEXPIRE', key, math.ceil((end_us - now) / 1000) + KEPT_MS)
end

-- Write the account in one step, with one more field. In a new period the former hash becomes that of the past.
local function write_account(one, field, value)
  if not one.enters then
    redis.call('HSET', one.key, 's', state_of(one), field, value)
    return
  end
  local last = redis.call('HGET', one.is_there and one.key or one.past, 'last')
  if one.rolls then
    redis.call('HSET', one.key, 's', one.is_there) -- refused at maxmemory, as the first write of a reserve always is
    redis.call('RENAME', one.key, one.past)
  end
  local fields = {'s', state_of(one), 'd', one.definition, field, value}
  if last and field ~= 'last' then
    fields[7], fields[8] = 'last', last
  end
  redis.call('HSET', one.key, unpack(fields))
  outlive(one.key, one.end_us)
end
