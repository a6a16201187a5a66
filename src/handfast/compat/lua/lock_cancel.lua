-- lock_cancel: take back what an acquire that ended early may have got, or may yet get.
--
-- KEYS lock past
-- ARGV token own
-- REPLY cancelled
--
-- The key goes only if this very acquire has it: another may have been given the same token (see lock_acquire).
--
-- TWICE the same: what was taken back is not there any more.
-- LATE an acquire is over all the same: it was cancelled before this was sent.
-- MEMORY the first write is a DEL, which passes at maxmemory and lets the rest through.
local lock, past = KEYS[1], KEYS[2]
local token, own = ARGV[1], ARGV[2] == '1'

local mine = redis.pcall('GET', lock) == token and (own or redis.call('GET', past) == 'granted')
redis.call('DEL', mine and lock or past)
redis.call('SET', past, 'over', 'PX', 600000)
return {'cancelled'}
