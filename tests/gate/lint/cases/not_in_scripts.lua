-- === a script in a script
return redis.call('EVALSHA', ARGV[1], 0) --! not-in-scripts
-- === a subscription
return redis.call('SUBSCRIBE', 'news') --! not-in-scripts
-- === a setting
return redis.call('CONFIG', 'GET', 'maxmemory') --! not-in-scripts
-- === a message
return redis.call('PUBLISH', 'news', 'hello')
