-- tombstones: the memory of finished tokens.
--
-- USES now
-- GIVES add_tombstone
--
-- A token that was released or cancelled, or that was found lost when it was to be released, is remembered for a
-- while. In that time a release that is sent again gets the same answer, and an acquire that arrives late changes
-- nothing.

local function add_tombstone(tombstones, token, is_lost)
  local TOMBSTONE_US = 20000000 -- 20 s: for as long the drivers retry, and clean up in the background
  local LOST_MARK = 0.5 -- a score with half a microsecond says that the lease was lost
  local KEY_TTL_MS = 80000 -- a minute longer than the last tombstone
  local PRUNE_EVERY, MAX_PRUNED = 16, 100 -- one call in 16 removes up to 100 expired ones: more than are added

  redis.call('ZADD', tombstones, now + TOMBSTONE_US + (is_lost and LOST_MARK or 0), token)
  redis.call('PEXPIRE', tombstones, KEY_TTL_MS)
  if now % PRUNE_EVERY == 0 then
    local expired = redis.call('ZRANGEBYSCORE', tombstones, '-inf', now, 'LIMIT', 0, MAX_PRUNED)
    if expired[1] then
      redis.call('ZREM', tombstones, unpack(expired))
    end
  end
end
