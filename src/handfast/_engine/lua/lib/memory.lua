-- memory: whether this script may write when the server has reached its maxmemory.
--
-- USES
-- GIVES require_memory allow_at_maxmemory
--
-- At maxmemory the server refuses a command that may need memory (ZADD, HSET), but only before a script has written:
-- after any write that it lets through, all later ones pass. So the first write decides for the whole script. These
-- two change nothing, since no member is the empty text; they are that first write where another order would decide
-- otherwise.

-- Invariant 11: what follows is refused at maxmemory, unless this script has already given something back.
local function require_memory(holders)
  redis.call('ZADD', holders, 'XX', 0, '')
end

-- What follows is for tokens that are here already, and passes at maxmemory.
local function allow_at_maxmemory(holders)
  redis.call('ZREM', holders, '')
end
