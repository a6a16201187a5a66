-- watchers: who gets a message when something has changed, once.
--
-- USES now watchers has_subscriber publish
-- GIVES watch ring
--
-- The sorted set `watchers` has `<token> <inbox>` for each, with the end of its interest. Who gets the message asks again,
-- and so does who got none for a while. Who waits no more is forgotten in time: to give up takes no call.

local MAX_RUNG = 100 -- (invariant 13)

-- Have a message sent within so many milliseconds.
local function watch(token, inbox, ms)
  redis.call('ZADD', watchers, now + ms * 1000, token .. ' ' .. inbox)
  redis.call('PEXPIRE', watchers, ms + GRACE_MS)
  local gone = redis.call('ZRANGEBYSCORE', watchers, '-inf', now, 'LIMIT', 0, MAX_RUNG)
  if gone[1] then
    redis.call('ZREM', watchers, unpack(gone))
  end
end

-- Send up to 100 messages. Returns whether others may be left.
local function ring()
  local found = redis.call('ZRANGE', watchers, 0, MAX_RUNG - 1)
  for _, watcher in ipairs(found) do
    local token, inbox = string.match(watcher, '^(%S+) (.+)$')
    if has_subscriber(inbox) then
      publish(token, inbox, 0, 0)
    end
  end
  if found[1] then
    redis.call('ZREM', watchers, unpack(found)) -- last: a script that was cut off is sent again
  end
  return #found == MAX_RUNG
end
