-- turns: the queue of a limiter, which is served first come, first served.
--
-- USES now queue waiting rates set_rates windows metrics remaining fits admit due has_subscriber publish remember
-- GIVES enter_queue leave_queue read_record evict_waiters serve
--
-- The sorted set `queue` has the tokens of the waiters, with their tickets. The hash `waiting` has a record of each:
--
--   mark comes_at follows cost (doubles), then behind a byte for their length the rates, then as text: inbox control label
--   and words, as in lib/record.lua
--
-- mark is the end of the wait-lease in microseconds. comes_at is when it asks again if it is the first waiter: by a
-- message, or by its last reply; infinite if not. follows is 1 if the rates are those that were set when
-- it asked, and not its client's own. Of a limiter with metrics cost is 0, and the word `costs` lists those of each window.
-- All but mark and comes_at comes from the client in one piece.
-- A token without a record is no waiter. So the record goes first, and comes last.

local COST_AT = 17 -- behind mark and comes_at: what comes from the client

-- Enter the queue with a ticket, or stay there for another wait-lease.
local function enter_queue(token, ticket, wants, wait_ms, is_there, comes_at)
  if not is_there then
    redis.call('ZADD', queue, ticket, token)
  end
  redis.call('PEXPIRE', queue, wait_ms + GRACE_MS)
  local marks = struct.pack('<dd', now + wait_ms * 1000, comes_at or math.huge)
  redis.call('HSET', waiting, token, marks .. wants)
  redis.call('PEXPIRE', waiting, wait_ms + GRACE_MS)
end

local function leave_queue(token)
  redis.call('HDEL', waiting, token)
  redis.call('ZREM', queue, token)
end

local function read_record(record)
  local wait_until, comes_at, follows, cost, its_rates, start = struct.unpack('<ddddBc0', record)
  local inbox = string.sub(record, start, string.find(record, ' ', start, true) - 1)
  return wait_until, comes_at, follows, cost, its_rates, inbox
end

-- Remove waiters that are gone: their wait-lease has lapsed, or their inbox has no subscriber. Looks at 100 of them, of
-- a longer queue at any 100 in a row. Returns whether one was removed.
local function evict_waiters()
  local MAX_EVICTED = 100 -- (invariant 13)
  local start = now % math.max(1, redis.call('ZCARD', queue) - MAX_EVICTED + 1)
  local tokens = redis.call('ZRANGE', queue, start, start + MAX_EVICTED - 1)
  local records, listens, is_removed = redis.call('HMGET', waiting, unpack(tokens)), {}, false
  for i, token in ipairs(tokens) do
    local wait_until, inbox, _ = 0, nil, nil
    if records[i] then
      wait_until, _, _, _, _, inbox = read_record(records[i])
    end
    if inbox and listens[inbox] == nil then
      listens[inbox] = has_subscriber(inbox)
    end
    if wait_until < now or not listens[inbox] then
      leave_queue(token)
      is_removed = true
    end
  end
  return is_removed
end

-- Let the first waiter come: this script does not have the windows of its rates, or they do not count any more. Returns
-- whether the waiter has left the queue; else when it comes. It gets one message. If it has not asked within the claim
-- window, its process is frozen: the queue passes over it and the others of its connection, until they ask again.
local frozen = {}

local function await_head(head, record, inbox, comes_at, moved)
  if comes_at + CLAIM_US < now or frozen[inbox] then
    frozen[inbox] = true
    leave_queue(head)
    return true
  elseif comes_at > now and (moved or comes_at == math.huge) then
    redis.call('HSET', waiting, head, string.sub(record, 1, 8) .. struct.pack('<d', now) .. string.sub(record, COST_AT))
    publish(head, inbox, now, 0)
    return false, now
  end
  return false, math.max(now, comes_at)
end

-- Serve the first waiter. Returns whether it has left the queue: admitted, or gone; else from when on it may fit.
-- One that stays gets a message when to come, if it has `moved` to the first place. Whether it is gone is looked at where
-- it keeps others from what is left.
local function serve_head(head, moved, is_last, served)
  local record = redis.call('HGET', waiting, head)
  local wait_until, comes_at, follows, cost, its_rates, inbox = 0
  if record then
    wait_until, comes_at, follows, cost, its_rates, inbox = read_record(record)
  end
  if wait_until < now then
    leave_queue(head)
    return true
  end
  local they_count = its_rates == set_rates or not set_rates and follows == 0
  local is_alike = its_rates == rates and they_count
  local costs = is_alike and metrics and metrics.costs_of(record) or {cost, cost, cost, cost}
  local its_due = is_alike and due(costs) or comes_at < math.huge and math.max(now, comes_at) or now
  if not moved and remaining() == 0 and not metrics then
    return false, its_due
  end
  if not has_subscriber(inbox) then
    leave_queue(head)
    return true
  elseif not is_alike then
    return await_head(head, record, inbox, comes_at, moved)
  elseif fits(costs) and not is_last then
    leave_queue(head)
    admit(costs, now, head)
    served[#served + 1] = '!' .. head
    publish(head, inbox, remaining(), 1, metrics and metrics.rests())
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
  local served, is_done, its_due, goes_on = {}, false, now, true
  for count = 0, MAX_SERVED do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head or head == me then
      is_done, its_due, goes_on = true, now, false
      break
    end
    local has_left
    has_left, its_due = serve_head(head, moved, count == MAX_SERVED, served)
    if not has_left then
      goes_on = false
      break
    end
    moved = true
  end
  -- A waiter whose message is lost asks within 20 s. If no window has it then, this tells that it was admitted.
  if served[1] and windows[#windows].per_ms <= REPEAT_MS then
    remember(unpack(served))
  end
  return is_done, its_due or now, goes_on
end
