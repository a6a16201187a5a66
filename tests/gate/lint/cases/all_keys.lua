-- === walking all
local found = redis.call('KEYS', 'user:*') --! all-keys
return #found
-- === in steps
return redis.call('SCAN', '0', 'MATCH', 'user:*') --! all-keys
-- === emptying
return redis.call('flushall') --! all-keys
-- === one collection
return redis.call('SSCAN', KEYS[1], '0', 'MATCH', 'user:*')
