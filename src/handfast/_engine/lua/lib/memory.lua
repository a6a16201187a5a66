-- memory: whether this script may write when the server has reached its maxmemory.
--
-- USES state tokens gives_back
-- GIVES require_memory allow_at_maxmemory
--
-- At maxmemory the server refuses a command that may need memory (HSET, ZADD), but only before a script has
-- written: after any write that it lets through, all later ones pass. So the first write decides for the whole
-- script. These two change nothing, since no token has a space and no field is the empty text; they are that first
-- write where another order would decide otherwise.

-- Invariant 11: what follows is refused at maxmemory, unless this script gives something back.
local function require_memory()
  if not gives_back then
    redis.call('ZADD', tokens, 'XX', 0, ' ')
  end
end

-- What follows is for tokens that are here already, and passes at maxmemory.
local function allow_at_maxmemory()
  redis.call('HDEL', state, '')
end
