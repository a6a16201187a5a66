-- once_forget: delete the record of a key, if it is the one that was shown.
--
-- KEYS result
-- ARGV head
-- REPLY forgotten
-- REPLY changed
--
-- head is the beginning of the record, which tells it from all others: its time, fence, state and token, as lib/outcome.lua
--   has them, of any layout.
--
-- TWICE the second time the reply is `changed`: there is no record, or another one that was made since. A caller whose reply
--   was lost reads which.
-- LATE another record stays as it is: no later one has the same time, fence and token.
-- MEMORY the only write is a DEL, which passes at maxmemory.
-- CUT there is nothing behind the only write; a user who lacks a right is refused before it.

local head = ARGV[1]
if head == '' or redis.call('GETRANGE', KEYS[1], 0, #head - 1) ~= head then
  return 'changed '
end
redis.call('DEL', KEYS[1])
return 'forgotten '
