-- past: the short memory of tokens that are over.
--
-- USES past now
-- GIVES bury

-- A token that was released or cancelled is remembered for 20 s. Within that time a release that is
-- sent again still answers `released`, and an acquire that arrives late changes nothing. Now and then
-- up to 100 that may be forgotten are swept out: on average more than come in.
local function bury(token)
  redis.call('ZADD', past, now + 20000000, token)
  redis.call('PEXPIRE', past, 80000)
  if now % 16 == 0 then
    local forgotten = redis.call('ZRANGEBYSCORE', past, '-inf', now, 'LIMIT', 0, 100)
    if forgotten[1] then
      redis.call('ZREM', past, unpack(forgotten))
    end
  end
end
