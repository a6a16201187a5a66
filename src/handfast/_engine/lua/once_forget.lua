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
-- TWICE the second time there is no record, and the reply is `changed`.
-- LATE another record stays as it is.
-- MEMORY the only write is a DEL, which passes at maxmemory.

local head = ARGV[1]
if head == '' or redis.call('GETRANGE', KEYS[1], 0, #head - 1) ~= head then
  return 'changed '
end
redis.call('DEL', KEYS[1])
return 'forgotten '
