-- reset: beginning with a name that nobody holds and nobody waits for.
--
-- USES holders tokens stored resized used
-- GIVES start_afresh

-- Where `used` is still there, somebody never gave up what it had, and all is forgotten by now but its
-- record, which would stay for as long as the name is used.
local function start_afresh()
  used = 0
  if stored then
    redis.call('ZADD', holders, 'XX', 0, '') -- invariant 11: what follows is not for those who come in vain
    redis.call('DEL', tokens)
    if resized then
      redis.call('HSET', tokens, 'limit', resized)
    end
  end
end
