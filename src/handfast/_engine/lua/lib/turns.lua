-- turns: the queue of a limiter, which is served first come, first served.
--
-- USES now queue waiting rates set_rates remaining fits admit due has_subscriber publish
-- GIVES enter_queue leave_queue serve
--
-- The sorted set `queue` has the tokens of the waiters, with their tickets. The hash `waiting` has a record of each:
--
--   mark follows cost (doubles), then behind a byte for their length the rates, then as text: inbox control label
--
-- mark is the end of the wait-lease in microseconds. follows is 1 if the rates are those that were set when it asked,
-- and not its client's own. All but the mark comes from the client in one piece.
-- A token without a record is no waiter. So the record goes first, and comes last.

-- Enter the queue with a ticket, or stay there for another wait-lease.
local function enter_queue(token, ticket, wants, wait_ms, is_there)
  if not is_there then
    redis.call('ZADD', queue, ticket, token)
  end
  redis.call('PEXPIRE', queue, wait_ms + GRACE_MS)
  redis.call('HSET', waiting, token, struct.pack('<d', now + wait_ms * 1000) .. wants)
  redis.call('PEXPIRE', waiting, wait_ms + GRACE_MS)
end

local function leave_queue(token)
  redis.call('HDEL', waiting, token)
  redis.call('ZREM', queue, token)
end

-- Serve the first waiter. Returns whether it has left the queue: admitted, or gone; else from when on it may fit.
-- One that stays gets a message when to come, if it has `moved` to the first place. One with other rates comes at once,
-- since this script does not have its windows, or they do not count any more. Whether it is gone is looked at where it
-- keeps others from what is left.
local function serve_head(head, moved, is_last)
  local record = redis.call('HGET', waiting, head)
  local wait_until, follows, cost, its_rates, start = 0
  if record then
    wait_until, follows, cost, its_rates, start = struct.unpack('<dddBc0', record)
  end
  if wait_until < now then
    leave_queue(head)
    return true
  end
  local they_count = its_rates == set_rates or not set_rates and follows == 0
  local is_alike = its_rates == rates and they_count
  local is_admitted = is_alike and not is_last and fits(cost)
  local its_due = is_alike and due(cost) or now
  if not moved and remaining() == 0 then
    return false, its_due
  end
  local inbox = string.sub(record, start, string.find(record, ' ', start, true) - 1)
  if not has_subscriber(inbox) then
    leave_queue(head)
    return true
  elseif is_admitted then
    leave_queue(head)
    admit(head, cost, now)
    publish(head, inbox, remaining(), 1)
    return true
  elseif moved then
    publish(head, inbox, its_due, 0)
  end
  return false, its_due
end

-- Serve the waiters before `me` in their order, or all. Returns whether none of them is left; else from when on the
-- first one may fit. After as many as one call serves, the next one gets the message to come now, and goes on; if that
-- one is gone as well, the third result is true, and the caller has to go on.
local function serve(me, moved)
  local MAX_SERVED = 100 -- (invariant 13)
  for served = 0, MAX_SERVED do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head or head == me then
      return true, now
    end
    local has_left, its_due = serve_head(head, moved, served == MAX_SERVED)
    if not has_left then
      return false, its_due
    end
    moved = true
  end
  return false, now, true
end
