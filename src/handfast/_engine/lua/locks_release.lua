-- locks_release: release those of many locks that their tokens hold, and that no one waits for.
--
-- KEYS state...
-- ARGV tokens
-- REPLY - a byte for each name: 1 if it was released, else 0
--
-- tokens has one token for each name, each behind a byte for its length.
--
-- A lock with an empty queue whose token is the holder in the state is left as permit_release leaves it in its short
-- way. For any other name this script changes nothing, and the client sends permit_release. The names have nothing to
-- do with each other: any part of them may have been released.
--
-- TWICE 1 until the next grant of the name; then 0. To permit_release the token is unknown then, and the client, which
--   had no reply to the first one, takes that for released.
-- LATE an unknown token changes nothing.
-- MEMORY the first write is a HSET that is repeated behind one that passes at maxmemory.

local OVER = '\0\0\0\0\0\0\0\0' -- the end of a lease that was given up
local tokens = ARGV[1]
local answers, at = {}, 1
for k = 1, #KEYS do
  local text, answer = redis.call('HGET', KEYS[k], 's'), '0'
  local size = 1 + string.byte(tokens, at)
  if
    text
    and string.sub(text, LENGTH_AT, HOLDER_AT - 1) == OVER
    and string.sub(text, HOLDER_AT, HOLDER_AT - 1 + size) == string.sub(tokens, at, at + size - 1)
  then
    local free = OVER .. string.sub(text, FENCE_AT)
    if free ~= text and type(redis.pcall('HSET', KEYS[k], 's', free)) == 'table' then
      redis.call('HDEL', KEYS[k], '')
      redis.call('HSET', KEYS[k], 's', free)
    end
    answer = '1'
  end
  answers[k], at = answer, at + size
end
return table.concat(answers)
