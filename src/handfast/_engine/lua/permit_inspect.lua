-- permit_inspect: list holders and waiters. Changes nothing.
--
-- KEYS holders queue tokens
-- ARGV max_shown
-- REPLY state now_us fence limit used holding waiting holders_shown waiters_shown
--
-- limit is the one that an operator has set, 0 if none has. used is how many permits are out, -1 where that is not
-- known any more. holders_shown and waiters_shown list up to max_shown tokens each, three items a token: its first 8
-- characters (a whole token is the right to release), its deadline in us or its ticket, and its record.
--
-- TWICE, LATE and MEMORY it only reads.

-- @include clock
-- @include record

local holders, queue, tokens = KEYS[1], KEYS[2], KEYS[3]
local max_shown = tonumber(ARGV[1])

-- As many characters of a token as tell it from others.
local TOKEN_SHOWN = 8

-- Expired leases that are counted out; one call sweeps fewer.
local MAX_EXPIRED = 1000

local function list(key, first_score)
  local shown = {}
  local found = redis.call('ZRANGEBYSCORE', key, first_score, '+inf', 'WITHSCORES', 'LIMIT', 0, max_shown)
  for i = 1, #found, 2 do
    shown[#shown + 1] = string.sub(found[i], 1, TOKEN_SHOWN)
    shown[#shown + 1] = found[i + 1]
    shown[#shown + 1] = redis.call('HGET', tokens, found[i]) or ''
  end
  return shown
end

local live = string.format('(%.0f', now)
local fence, limit, stored_used = unpack(redis.call('HMGET', tokens, 'fence', 'limit', 'used'))
local holding, waiting = redis.call('ZCOUNT', holders, live, '+inf'), redis.call('ZCARD', queue)
local used = holding == 0 and 0 or tonumber(stored_used) or -1
if used > 0 then
  -- Leases that have ended and are not swept yet are not out any more.
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', holders, '-inf', now, 'LIMIT', 0, MAX_EXPIRED)) do
    used = used - weight_of(redis.call('HGET', tokens, token))
  end
end
local holders_shown, waiters_shown = list(holders, live), list(queue, '-inf')
return {
  'state', now, tonumber(fence) or 0, tonumber(limit) or 0, used, holding, waiting, holders_shown, waiters_shown,
}
