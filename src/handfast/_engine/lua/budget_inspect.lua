-- budget_inspect: read one or several accounts of a budget. Changes nothing.
--
-- KEYS account past ends more...
-- REPLY state now_us begin_us end_us spent held limit told definition last was was_end_us
-- REPLY - of several accounts an array with such a reply for each
--
-- `more` are the three keys of further accounts. begin_us and end_us are the period in which the account counts, and
--   which may be over. limit is -1 unless one is set, and told that of the latest reserve. last is the field of
--   lib/account.lua, or the empty text. held leaves out holds that have lapsed, a hundred at most. was is the sum of
--   the period before, which ended at was_end_us. All are 0, and the texts empty, where there is no account.
--
-- TWICE, LATE and MEMORY it only reads.

-- @include clock

-- The sum of the holds of a period whose TTL is over.
local function lapsed_in(account, ends, begin_us)
  local sum, fields = 0, redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 100)
  for i, token in ipairs(fields) do
    fields[i] = 't:' .. token
  end
  for _, hold in ipairs(fields[1] and redis.call('HMGET', account, unpack(fields)) or {}) do
    if hold and #hold == 16 then
      local its_begin_us, amount = struct.unpack('<dd', hold)
      sum = sum + (its_begin_us == begin_us and amount or 0)
    end
  end
  return sum
end

local function inspect(account, past, ends)
  local state, definition, last = unpack(redis.call('HMGET', account, 's', 'd', 'last'))
  local before = redis.call('HGET', past, 's')
  local _, was_end_us, was_spent, was_held = struct.unpack('<dddd', before or string.rep('\0', 32))
  if state and #state ~= 56 then
    error('stored in ' .. state)
  end
  local begin_us, end_us, spent, held, limit, told = struct.unpack('<dddddd', state or string.rep('\0', 48))
  limit, held = state and limit or -1, held - (held > 0 and lapsed_in(account, ends, begin_us) or 0)
  local was = was_spent + was_held
  return {'state', now, begin_us, end_us, spent, held, limit, told, definition or '', last or '', was, was_end_us}
end

if #KEYS == 3 then
  return inspect(KEYS[1], KEYS[2], KEYS[3])
end
local accounts = {}
for i = 1, #KEYS, 3 do
  accounts[#accounts + 1] = inspect(KEYS[i], KEYS[i + 1], KEYS[i + 2])
end
return accounts
