-- pause: for a while no one makes a result of once anew, since a run has just begun or failed to.
--
-- USES now state
-- GIVES is_paused pause
--
-- The hash `state` has the field `pause` then: three doubles, the `at` of that result, and from when until when no other
-- run tries.

-- Whether it is too early to make this result anew once more. A clock that was set back ends that.
local function is_paused(outcome)
  local text = redis.call('HGET', state, 'pause')
  if not text then
    return false
  end
  local at, from_us, until_us = struct.unpack('<ddd', text)
  return at == outcome.at and from_us <= now and now < until_us
end

local function pause(outcome, ms)
  redis.call('HSET', state, 'pause', struct.pack('<ddd', outcome.at, now, now + ms * 1000))
end
