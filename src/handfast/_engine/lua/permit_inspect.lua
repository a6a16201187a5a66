-- permit_inspect: who holds what, and who waits. Changes nothing.
--
-- KEYS holders queue tokens
-- ARGV max_shown
-- REPLY state now_us fence limit out holding waiting held_by waited_by
--
-- limit is the one that an operator has set, 0 if none has; out is how many permits are out, -1 if that
-- is not known any more. held_by and waited_by list up to max_shown tokens each, three items a token: its
-- first 8 characters (a whole token is the right to release), its deadline or ticket, its record.
--
-- TWICE, LATE and MEMORY it only reads.
local holders, queue, tokens = KEYS[1], KEYS[2], KEYS[3]
local max_shown = tonumber(ARGV[1])
-- @include clock

local function list(key, first_score)
  local shown = {}
  local found = redis.call('ZRANGEBYSCORE', key, first_score, '+inf', 'WITHSCORES', 'LIMIT', 0, max_shown)
  for i = 1, #found, 2 do
    shown[#shown + 1] = string.sub(found[i], 1, 8)
    shown[#shown + 1] = found[i + 1]
    shown[#shown + 1] = redis.call('HGET', tokens, found[i]) or ''
  end
  return shown
end

local live = string.format('(%.0f', now)
local fence, limit, used = unpack(redis.call('HMGET', tokens, 'fence', 'limit', 'used'))
local holding, waiting = redis.call('ZCOUNT', holders, live, '+inf'), redis.call('ZCARD', queue)
local out = holding == 0 and 0 or tonumber(used) or -1
if out > 0 then
  -- What is over and not swept up yet is not out any more.
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', holders, '-inf', now, 'LIMIT', 0, 1000)) do
    local weight = string.match(redis.call('HGET', tokens, token) or '', '^%d+')
    out = out - (tonumber(weight) or 0)
  end
end
local held_by, waited_by = list(holders, live), list(queue, '-inf')
return {'state', now, tonumber(fence) or 0, tonumber(limit) or 0, out, holding, waiting, held_by, waited_by}
