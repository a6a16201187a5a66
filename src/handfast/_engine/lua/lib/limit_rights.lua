-- limit_rights: the rights that an act on a limiter needs, before its first write.
--
-- USES queue waiting settings read_record
-- GIVES require_act_rights require_pause_rights

-- @include rights

local function require_act_rights()
  local head = redis.call('ZRANGE', queue, 0, 0)[1]
  local record, inbox, _ = head and redis.call('HGET', waiting, head), nil, nil
  if record then
    _, _, _, _, _, inbox = read_record(record)
  end
  local commands = 'exists hdel hget hmget hset pexpire pttl publish pubsub zadd zcard zcount zmscore zrange'
  require_rights(settings, inbox, commands .. ' zrangebyscore zrem zremrangebyrank zscore')
end

-- A pause does not serve the queue.
local function require_pause_rights()
  require_rights(settings, nil, 'hset pexpire pttl')
end
