-- permit_confirm: let a lease that was handed over last ttl_ms from now, or longer if it already does.
--
-- KEYS state tokens
-- ARGV token ttl_ms
-- REPLY renewed lease_us
-- REPLY lost
--
-- A caller that was handed its lease runs before this reply comes. So the script travels as source, which no server
-- can have forgotten, and the server hashes every byte of it: it is permit_renew for one name, without the life of
-- the keys. Of that the request took care when it entered the queue.
--
-- TWICE the deadline is set, never added to.
-- LATE after a release it finds no holder and changes nothing; it never brings a lease back.
-- MEMORY the first write is one that passes at maxmemory, or a HSET that is repeated behind one.

-- @include clock

local state, tokens, token = KEYS[1], KEYS[2], ARGV[1]
local text, its_end = redis.call('HGET', state, 's'), 0
if text and #text < HOLDER_AT then
  error('stored in ' .. text) -- as lib/state.lua says
end
local in_state = text and string.sub(text, HOLDER_AT + 1, HOLDER_AT + string.byte(text, HOLDER_AT)) == token
if in_state then
  its_end = (struct.unpack('<d', text))
elseif text then
  its_end = tonumber(redis.call('ZSCORE', tokens, token) or 0)
end
if its_end <= now or its_end >= FINISHED then
  return 'lost '
end
its_end = math.max(its_end, now + tonumber(ARGV[2]) * 1000)
text = in_state and struct.pack('<d', its_end) .. string.sub(text, FENCE_AT)
if not text or type(redis.pcall('HSET', state, 's', text)) == 'table' then
  redis.call('HDEL', state, '')
  if text then
    redis.call('HSET', state, 's', text)
  else
    redis.call('ZADD', tokens, its_end, token)
  end
end
return 'renewed ' .. struct.pack('<d', its_end - now)
