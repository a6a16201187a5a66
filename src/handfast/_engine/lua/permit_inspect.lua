-- permit_inspect: list holders and waiters of one or several names. Changes nothing.
--
-- KEYS state tokens more...
-- ARGV max_shown
-- REPLY state now_us fence limit used holding waiting grants waited_us last holders_shown waiters_shown
-- REPLY - of several names an array with such a reply for each
--
-- `more` are the keys of further names, two each.
--
-- limit is the one that an operator has set, 0 if none has. used is how many permits are out, -1 where that is not
-- known any more. grants and waited_us are the counters of lib/state.lua, and last is its field of that name, or the
-- empty text. holders_shown and waiters_shown list up to max_shown tokens each, three items a token: its first 8
-- characters (a whole token is the right to release), its deadline in us or its ticket, and its record. An operator's
-- hold is one of the holders.
--
-- TWICE, LATE and MEMORY it only reads.

-- @include clock
-- @include record
-- @include state
-- @include hold

local max_shown = tonumber(ARGV[1])

-- As many characters of a token as tell it from others.
local TOKEN_SHOWN = 8

-- Expired leases and waiters of a name that are counted out; one call sweeps fewer.
local MAX_EXPIRED = 1000

local function add(shown, token, score, its_record)
  shown[#shown + 1] = string.sub(token, 1, TOKEN_SHOWN)
  shown[#shown + 1] = string.format('%.0f', score)
  shown[#shown + 1] = its_record or ''
end

local function list_holders(shown, first, count)
  local found = redis.call('ZRANGEBYSCORE', tokens, first, FINISHED, 'WITHSCORES', 'LIMIT', 0, count)
  for i = 1, #found, 2 do
    if found[i] ~= HOLD then
      add(shown, found[i], found[i + 1], redis.call('HGET', state, found[i]))
    end
  end
end

-- List the waiters whose wait-lease lasts. Returns how many others there are, below zero: they are dead, and still there.
local function list_waiters(shown)
  local found = redis.call('ZRANGEBYSCORE', tokens, '-inf', '(0', 'WITHSCORES', 'LIMIT', 0, MAX_EXPIRED)
  local dead = 0
  for i = 1, #found, 2 do
    local its_record = redis.call('HGET', state, found[i])
    if its_record and struct.unpack('<d', its_record) < now then
      dead = dead - 1
    elseif #shown < 3 * max_shown then
      add(shown, found[i], found[i + 1] + FINISHED, its_record)
    end
  end
  return dead
end

local live = string.format('(%.0f', now)

local function inspect(state_key, tokens_key)
  local texts = redis.call('HMGET', state_key, 's', 'last')
  load_name(state_key, tokens_key, texts[1])
  local holding, waiters, is_out = 0, 0, 0
  local holders_shown, waiters_shown = {}, {}
  if lease_end > now then
    holding, is_out = 1, weight_of(record)
    if max_shown > 0 then
      add(holders_shown, holder, lease_end, record)
    end
  end
  if out > 0 then
    local others = redis.call('ZCOUNT', tokens, live, FINISHED)
    if others > 0 and out == math.huge then
      is_out = -1
    elseif others > 0 then
      is_out = is_out + out
      -- Leases that have ended and are not swept yet are not out any more.
      for _, token in ipairs(redis.call('ZRANGEBYSCORE', tokens, '(0', now, 'LIMIT', 0, MAX_EXPIRED)) do
        is_out = is_out - weight_of(redis.call('HGET', state, token))
      end
    end
    holding = holding + others
    local its_end = max_shown > 0 and hold_end()
    if its_end then -- in any case, however many end before it
      add(holders_shown, HOLD, its_end, redis.call('HGET', state, HOLD))
    end
    -- Not below 0: the server takes that for no limit.
    list_holders(holders_shown, live, math.max(0, max_shown - #holders_shown / 3))
  end
  if length > 0 then
    waiters = redis.call('ZCOUNT', tokens, '-inf', '(0') + list_waiters(waiters_shown)
  end
  return {
    'state', now, fence, set_limit, is_out, holding, waiters, grants, waited, texts[2] or '', holders_shown,
    waiters_shown,
  }
end

if #KEYS == 2 then
  return inspect(KEYS[1], KEYS[2])
end
local names = {}
for k = 1, #KEYS, 2 do
  names[#names + 1] = inspect(KEYS[k], KEYS[k + 1])
end
return names
