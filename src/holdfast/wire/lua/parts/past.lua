-- past: the short memory of tokens that are over.
--
-- USES past now keep
-- GIVES bury

-- A token that was released or cancelled is remembered for 20 s. Within that time a release that is
-- sent again still answers `released`, and an acquire that arrives late changes nothing.
local function bury(token)
  redis.call('ZADD', past, now + 20000000, token)
  redis.call('ZREMRANGEBYSCORE', past, '-inf', now)
  keep(past, 20000)
end
