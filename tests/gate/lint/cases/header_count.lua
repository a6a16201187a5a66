-- === a key that the header does not have
-- KEYS from
local from, to = KEYS[1], KEYS[2] --! header-count
return redis.call('RENAME', from, to)
-- === arguments, of which the header has none
-- KEYS from
return redis.call('SET', KEYS[1], ARGV[1]) --! header-count
-- === any number of the last
-- KEYS from
-- ARGV values...
return redis.call('SADD', KEYS[1], ARGV[1], ARGV[2], ARGV[3])
-- === a header that names nothing
-- REPLY - what it was
return redis.call('GET', KEYS[7])
