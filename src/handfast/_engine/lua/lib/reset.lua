-- reset: the state that an expired holder has left on a name which is free now.
--
-- USES require_memory
-- GIVES drop_stale_state

-- For a name without holders and queue. Where `used` is still there, a holder never released, and its key has
-- expired. Its record would stay for as long as the name is used. The fence may go, since the next one is a later
-- time.
local function drop_stale_state(s)
  s.used = 0
  if s.stored_used then
    require_memory(s.holders)
    redis.call('DEL', s.tokens)
    if s.limit then
      redis.call('HSET', s.tokens, 'limit', s.limit)
    end
  end
end
