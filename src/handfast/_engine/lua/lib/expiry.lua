-- expiry: how long the keys of a name live.
--
-- USES
-- GIVES HOLDERS_GRACE_MS QUEUE_GRACE_MS tokens_grace_ms raise_ttl
--
-- Invariant 5: no key is ever without a TTL. A key outlives the longest lease in it, by a grace.

-- The queue: an hour, so that it outlives every step that a clock may take back.
-- The holders: two hours, so that a request that finds the queue expired still sweeps them, and their records.
local QUEUE_GRACE_MS, HOLDERS_GRACE_MS = 3600000, 7200000

-- The tokens: an hour, since the fence is among them, and 30 days where an operator has set the limit.
local function tokens_grace_ms(limit)
  return limit and 2592000000 or 3600000
end

-- Let a key live for `ms` from now at least. A TTL is only ever raised, by a minute more than needed, so that most
-- calls find one that is long enough. A new key has none yet.
local function raise_ttl(key, ms, is_new)
  local SLACK_MS = 60000
  if is_new or redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms + SLACK_MS)
  end
end
