-- expiry: how long the keys of a name live.
--
-- USES
-- GIVES keep linger memory_of

-- How much longer than the last lease in them the `holders` live, in ms: two hours, an hour more than the line.
-- Whoever comes by till then sweeps up what ran out, and its record with it.
local linger = 7200000

-- How much longer than any lease the `tokens` live, in ms: an hour, so that the fence outlives every
-- step that a clock may take back, and 30 days where an operator has set the limit.
local function memory_of(resized)
  return resized and 2592000000 or 3600000
end

-- Invariant 5: no key is ever without a TTL. A key outlives the longest lease in it: its TTL is
-- only ever raised, and a minute of slack makes raising it a rare write.
local function keep(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms + 60000)
  end
end
