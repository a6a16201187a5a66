-- permit_rights: the rights that an act on leases needs, before its first write.
--
-- USES state tokens length inbox_of
-- GIVES require_act_rights

-- @include rights

local function require_act_rights()
  local head = length > 0 and redis.call('ZRANGEBYSCORE', tokens, '-inf', '(0', 'LIMIT', 0, 1)[1]
  local its_record = head and redis.call('HGET', state, head)
  local commands = 'hdel hget hmget hset pexpire pttl publish pubsub zadd zcount zrangebyscore zrem zscore'
  require_rights(state, its_record and inbox_of(its_record), commands)
end
