-- lock_acquire: take the plain key of a lock, unless it is there.
--
-- KEYS lock past
-- ARGV token ttl_ms own
-- REPLY granted
-- REPLY busy left_ms
-- REPLY over
--
-- The key is what redis-py's Lock makes of it: the token as a text, with the TTL, or without one where ttl_ms is 0.
-- `past` belongs to this one acquire. own is 1 for a token that no other acquire has. Where the caller gave the token,
-- another may have the same: then `past` is what tells this acquire's grant from the other's.
-- left_ms is how long the key lasts, -1 if it does not end.
--
-- TWICE the same answer: a grant is known by its token, or by `past`, and has its whole TTL again.
-- LATE after its release or cancel it finds that it is `over`, for as long as `past` lasts, and changes nothing.
-- MEMORY the first write is a SET, which is refused, and nothing has changed.
local lock, past = KEYS[1], KEYS[2]
local token, ttl_ms, own = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'

local said = redis.call('GET', past)
if said == 'over' then
  return {'over'}
end
local holder = redis.pcall('GET', lock) -- an error where the key is no text: then it is not ours, and in the way
if not holder then
  -- First `past`: a record of a grant that was never made does no harm; a grant without a record would be an orphan.
  if not own then
    redis.call('SET', past, 'granted', 'PX', ttl_ms > 0 and math.min(ttl_ms, 600000) or 600000)
  end
  if ttl_ms > 0 then
    redis.call('SET', lock, token, 'PX', ARGV[2])
  else
    redis.call('SET', lock, token)
  end
  return {'granted'}
end
local left_ms = redis.call('PTTL', lock)
if holder == token and (own or said == 'granted') then
  if left_ms >= 0 and left_ms < ttl_ms then
    redis.call('PEXPIRE', lock, ARGV[2])
  end
  return {'granted'}
end
return {'busy', left_ms}
