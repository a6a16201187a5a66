-- keep: how long the keys of a name live.
--
-- USES
-- GIVES keep

-- Invariant 5: no key is ever without a TTL. A key outlives the longest lease in it: its TTL is
-- only ever raised, and a minute of slack makes raising it a rare write.
local function keep(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms + 60000)
  end
end
