-- permit_inspect: who holds what, and who waits. Changes nothing.
--
-- KEYS holders queue tokens
-- ARGV max_shown
-- REPLY state now_us fence holding waiting held_by waited_by
--
-- held_by and waited_by list up to max_shown tokens each, three items a token: its first 8
-- characters (a whole token is the right to release), its deadline or ticket, its record.
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
local fence = tonumber(redis.call('HGET', tokens, 'fence') or 0)
local holding, waiting = redis.call('ZCOUNT', holders, live, '+inf'), redis.call('ZCARD', queue)
return {'state', now, fence, holding, waiting, list(holders, live), list(queue, '-inf')}
