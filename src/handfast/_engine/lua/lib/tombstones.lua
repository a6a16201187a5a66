-- tombstones: the memory of tokens that are finished.
--
-- USES now tokens memory live_for save put
-- GIVES add_tombstone finished
--
-- A token that was cancelled, or released while copies of its acquire may be on their way, is remembered for a
-- while: an acquire that arrives late changes nothing. So is a lease that was taken away, for its holder to learn at the
-- release; and a request that another one has superseded, for its client to learn when it asks.

-- Remember a token, and save the state. Its place in the queue and its lease go by that, but for one in the state.
-- `kind` is true for a lease that was lost, 'superseded', or nothing.
local function add_tombstone(token, kind)
  local until_us = now + REPEAT_MS * 1000
  if kind == 'superseded' then
    until_us = until_us - until_us % 1024 + SUPERSEDED
  else
    until_us = until_us - until_us % 2 + (kind and 1 or 0) -- an odd time says that the lease was lost
    until_us = until_us % 1024 == SUPERSEDED and until_us - 2 or until_us
  end
  memory = math.max(memory, until_us)
  live_for(REPEAT_MS)
  save()
  put(FINISHED + until_us, token)
end

-- What is remembered of a token: 'finished', 'lost', 'superseded', or nothing.
local function finished(token)
  local score = memory > 0 and tonumber(redis.call('ZSCORE', tokens, token) or 0) or 0
  if score >= FINISHED then
    return score % 2 == 1 and 'lost' or score % 1024 == SUPERSEDED and 'superseded' or 'finished'
  end
end
