-- queue: entering and leaving the queue.
--
-- USES state tokens holder waiting length gives_back changed save expire_new live_for
-- GIVES ticket_of leave_queue arrive enter_queue
--
-- A waiter's ticket is the time at which it came, or one more than that of the last waiter where the clock was set back,
-- less its head start. So its client, which keeps the ticket, can bring it along and have its place again after the queue
-- was lost.

-- The ticket of a token that waits; nothing if it does not.
local function ticket_of(token)
  local score = length > 0 and tonumber(redis.call('ZSCORE', tokens, token) or 0) or 0
  return score < 0 and score + FINISHED or nil
end

-- Take a token out of the queue, without saving the state.
local function leave_queue(token)
  redis.call('HDEL', state, token)
  length, changed = length - redis.call('ZREM', tokens, token), true
end

-- The ticket of a newcomer. It counts as the last waiter, whatever its head start: another one with the same head start
-- comes behind it.
local function arrive(head_start_us)
  waiting = math.max(now, waiting + 1)
  return math.max(1, waiting - head_start_us)
end

-- Enter the queue with a ticket, or stay there: a script that gives back has its place already. Saves the state.
local function enter_queue(token, ticket, its_record, ms)
  if holder == token then
    holder = '' -- its lease is over: what it would release now is its place
  end
  live_for(ms)
  if gives_back then
    save(token, its_record)
    return
  end
  -- It is counted before it is seen: a count that is too high is noticed when the queue is served.
  waiting, length = math.max(waiting, ticket), length + 1
  save(token, its_record)
  local added = redis.call('ZADD', tokens, ticket - FINISHED, token, '+inf', '')
  expire_new(added, token)
  if added == 0 then
    length = length - 1
    save()
  end
end
