-- permit_renew: let the lease of one or several names last ttl_ms from now, or longer if it already does.
--
-- KEYS state tokens more...
-- ARGV token ttl_ms
-- REPLY renewed lease_us
-- REPLY lost
--
-- `more` are the keys of further names, two each. A lease that lost one of its names is lost: then nothing is
-- renewed. lease_us is the time from now until the lease ends; of several names, until the first one does. The lease of a
-- holder that was asked to end, see lib/ask.lua, lasts no longer than its record says.
--
-- TWICE the deadline is set, never added to.
-- LATE after a release it finds no holder and changes nothing; it never brings a lease back.
-- MEMORY the first write is one that passes at maxmemory, or a HSET that is repeated behind one.

-- @include clock

local token, ttl_ms = ARGV[1], tonumber(ARGV[2])
local texts, first = {}, math.huge
for k = 1, #KEYS, 2 do
  local text, its_end = redis.call('HGET', KEYS[k], 's'), 0
  if text and #text < HOLDER_AT then
    error('stored in ' .. text) -- as lib/state.lua says
  elseif text and string.sub(text, HOLDER_AT + 1, HOLDER_AT + string.byte(text, HOLDER_AT)) == token then
    its_end = (struct.unpack('<d', text))
  elseif text then
    its_end = tonumber(redis.call('ZSCORE', KEYS[k + 1], token) or 0)
    text = its_end < FINISHED and text or false
  end
  if not text or its_end <= now then
    return 'lost '
  end
  texts[k], first = text, math.min(first, its_end)
end
local lasts_until = math.max(first, now + ttl_ms * 1000)
for k = 1, #KEYS, 2 do
  local text, its_end = texts[k], now + ttl_ms * 1000
  local lease_end, _, keep = struct.unpack('<ddd', text)
  local is_alone = string.sub(text, HOLDER_AT + 1, HOLDER_AT + string.byte(text, HOLDER_AT)) == token
  local its_record = is_alone and text or redis.call('HGET', KEYS[k], token) or ''
  local _, last = string.find(its_record, ' wanted=', INBOX_AT, true)
  if last then -- lib/ask.lua has cut the lease, so it is no longer than this
    local asked_end = tonumber(string.match(its_record, '^%d+', last + 1)) + ASKED_US
    its_end, lasts_until = math.min(its_end, asked_end), math.min(lasts_until, asked_end)
  end
  if keep < its_end + HOUR_US then
    keep = its_end + 2 * HOUR_US
    redis.call('PEXPIRE', KEYS[k], math.floor((keep - now) / 1000))
    redis.call('PEXPIRE', KEYS[k + 1], math.floor((keep - now) / 1000))
    text = string.sub(text, 1, KEEP_AT - 1) .. struct.pack('<d', keep) .. string.sub(text, KEEP_AT + 8)
  end
  if is_alone then
    text = struct.pack('<d', math.max(lease_end, its_end)) .. string.sub(text, FENCE_AT)
  else
    redis.call('HDEL', KEYS[k], '')
    redis.call('ZADD', KEYS[k + 1], 'GT', its_end, token)
  end
  if text ~= texts[k] and type(redis.pcall('HSET', KEYS[k], 's', text)) == 'table' then
    redis.call('HDEL', KEYS[k], '')
    redis.call('HSET', KEYS[k], 's', text)
  end
end
return 'renewed ' .. struct.pack('<d', lasts_until - now)
