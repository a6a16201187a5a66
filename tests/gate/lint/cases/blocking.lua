-- === a list
return redis.call('BLPOP', KEYS[1], 0) --! blocking
-- === a stream
return redis.call('XREAD', 'BLOCK', 100, 'STREAMS', KEYS[1], '$') --! blocking
-- === replicas
return redis.call('WAIT', 1, 0) --! blocking
-- === without waiting
redis.call('XREAD', 'COUNT', 1, 'STREAMS', KEYS[1], '0')
return redis.call('LPOP', KEYS[1])
