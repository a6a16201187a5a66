-- === letters the wrong way round
return redis.call('HEGT', KEYS[1], 'name') --? unknown-command
-- === small letters, and a module's
redis.call('hget', KEYS[1], 'name')
return redis.call('JSON.GET', KEYS[1])
-- === one that is an argument
return redis.call(ARGV[1], KEYS[1])
