-- guild_complete: read the names between two sentinels, which are added and removed again.
--
-- KEYS guild
-- ARGV before behind
-- REPLY - up to ten names
local guild, before, behind = KEYS[1], ARGV[1], ARGV[2]

redis.call('ZADD', guild, 0, before, 0, behind)
local first = redis.call('ZRANK', guild, before)
local count = math.min(10, redis.call('ZRANK', guild, behind) - first - 1)
redis.call('ZREM', guild, before, behind)
if count < 1 then
  return {} -- ZRANGE would count a negative index from the end
end
return redis.call('ZRANGE', guild, first, first + count - 1)
