-- overtaken: which requests were superseded, for as long as the name is remembered.
--
-- USES state
-- GIVES note_overtaking was_overtaken
--
-- A request that another one has dismissed finds a tombstone, for 20 seconds. Its client may have been stopped for longer, and
-- brings its ticket along when it comes back. So the field `over` of the state, which is there only where a request has
-- overtaken, has two doubles: the ticket of the newest request that has replaced all that came before, and that of the
-- newest one that has preempted. The latter has a head start that no other request has, so only requests of its kind
-- have smaller tickets.

-- Note a request that overtakes, by its ticket.
local function note_overtaking(ticket, preempts)
  local noted = redis.call('HGET', state, 'over')
  local replaced, preempted = struct.unpack('<dd', noted or struct.pack('<dd', 0, 0))
  local known = replaced + preempted
  if preempts then
    preempted = math.max(preempted, ticket)
  else
    replaced = math.max(replaced, ticket)
  end
  if replaced + preempted > known then
    redis.call('HSET', state, 'over', struct.pack('<dd', replaced, preempted))
  end
end

-- Whether a request that is not in the queue was dismissed. `wants` is all that its record has behind the mark.
local function was_overtaken(ticket, wants)
  local noted = ticket > 0 and redis.call('HGET', state, 'over')
  if not noted then
    return false
  end
  local replaced, preempted = struct.unpack('<dd', noted)
  local _, last = string.find(wants, ' ahead=', 1, true)
  local came = ticket + (last and tonumber(string.match(wants, '^%d+', last + 1)) or 0)
  return came < replaced or ticket < preempted
end
