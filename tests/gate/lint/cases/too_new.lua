-- === the first line
#!lua flags=no-writes
--!^ too-new
return 1
-- === a command
return redis.call('LMPOP', 1, KEYS[1], 'LEFT') --! too-new
-- === that only one of them has
return redis.call('DELIFEQ', KEYS[1], ARGV[1]) --! too-new
-- === an option
return redis.call('EXPIRE', KEYS[1], 10, 'NX') --! too-new
-- === a function
return redis.acl_check_cmd('GET', KEYS[1]) and 1 --! too-new
-- === a table
return server.call('GET', KEYS[1]) --! too-new
-- === a function that is gone
print('here') --! too-new
return 1
-- === as the header says
-- NEEDS redis 7.0, valkey 7.2
return redis.call('LMPOP', 1, KEYS[1], 'LEFT')
-- === for one kind only
-- NEEDS valkey 9.0
return redis.call('DELIFEQ', KEYS[1], ARGV[1])
-- === not as old as that
-- NEEDS redis 7.2, valkey 7.2
return redis.call('HEXPIRE', KEYS[1], 10, 'FIELDS', 1, 'name') --! too-new
-- === values that look like options
redis.call('SET', KEYS[1], 'IFEQ')
redis.call('XADD', KEYS[1], '*', 'ACKED', '1')
redis.call('SET', KEYS[1], 'x', 'KEEPTTL')
return redis.call('ZADD', KEYS[1], 'GT', 1, 'x')
-- === an operation of an old command
return redis.call('BITOP', 'DIFF', KEYS[1], KEYS[2], KEYS[3]) --! too-new
-- === its own name on Valkey
-- NEEDS valkey 8.0
return server.call('GET', KEYS[1])
