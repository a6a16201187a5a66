-- tombstones: the short memory of tokens that are over.
--
-- USES past now
-- GIVES bury

-- A token that was released or cancelled, or was found lost when it was to be released, is remembered for
-- 20 s. Within that time a release that is sent again answers the same, and an acquire that arrives late
-- changes nothing. Until when stands in its score, of those that were lost with half a microsecond more.
-- Now and then up to 100 that may be forgotten are swept out: on average more than come in.
local function bury(token, lost)
  redis.call('ZADD', past, now + 20000000 + (lost and 0.5 or 0), token)
  redis.call('PEXPIRE', past, 80000)
  if now % 16 == 0 then
    local forgotten = redis.call('ZRANGEBYSCORE', past, '-inf', now, 'LIMIT', 0, 100)
    if forgotten[1] then
      redis.call('ZREM', past, unpack(forgotten))
    end
  end
end
