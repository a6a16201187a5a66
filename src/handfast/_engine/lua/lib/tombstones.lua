-- tombstones: the memory of tokens that are finished.
--
-- USES now tokens memory live_for save put
-- GIVES add_tombstone finished
--
-- A token that was cancelled, or released while copies of its acquire may be on their way, is remembered for a
-- while: an acquire that arrives late changes nothing. So is a lease that an operator took away, to tell its holder
-- at the release.

-- Remember a token, and save the state. Its place in the queue and its lease go by that, but for one in the state.
local function add_tombstone(token, is_lost)
  local until_us = now + REPEAT_MS * 1000
  until_us = until_us - until_us % 2 + (is_lost and 1 or 0) -- an odd time says that the lease was lost
  memory = math.max(memory, until_us)
  live_for(REPEAT_MS)
  save()
  put(FINISHED + until_us, token)
end

-- What is remembered of a token: 'finished', 'lost', or nothing.
local function finished(token)
  local score = memory > 0 and tonumber(redis.call('ZSCORE', tokens, token) or 0) or 0
  if score >= FINISHED then
    return score % 2 == 1 and 'lost' or 'finished'
  end
end
