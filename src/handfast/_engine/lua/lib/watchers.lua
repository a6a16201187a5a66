-- watchers: callers that get a message when an object changes, once each.
--
-- USES now watchers has_subscriber publish
-- GIVES watch ring
--
-- The sorted set `watchers` has a member `<token> <inbox>` for each caller, scored with the time until which the caller
-- waits. A caller asks again after a message, and after a few seconds without a message. A caller that gives up makes no
-- call: the member is dropped when its time is over.

local MAX_RUNG = 100 -- (invariant 13)

-- Note a caller that waits for a message, for `ms` at most.
local function watch(token, inbox, ms)
  redis.call('ZADD', watchers, now + ms * 1000, token .. ' ' .. inbox)
  redis.call('PEXPIRE', watchers, ms + GRACE_MS)
  local gone = redis.call('ZRANGEBYSCORE', watchers, '-inf', now, 'LIMIT', 0, MAX_RUNG)
  if gone[1] then
    redis.call('ZREM', watchers, unpack(gone))
  end
end

-- Send up to 100 messages. Returns how many watchers are left after so many, else 0. Those that were told ask again, and are
-- among them soon: who repeats the call counts down from the first answer.
local function ring()
  local found = redis.call('ZRANGE', watchers, 0, MAX_RUNG - 1)
  for _, watcher in ipairs(found) do
    local token, inbox = string.match(watcher, '^(%S+) (.+)$')
    if has_subscriber(inbox) then
      publish(token, inbox, 0, 0)
    end
  end
  local left = #found == MAX_RUNG and redis.call('ZCARD', watchers) - MAX_RUNG or 0
  if found[1] then
    redis.call('ZREM', watchers, unpack(found)) -- last: a script that was cut off is sent again
  end
  return left
end
