-- rights_check: find the commands that the user who runs this script may not send. None of them is sent.
--
-- ARGV commands...
-- REPLY refused places
-- REPLY unknown
-- NEEDS redis 7.0, valkey 7.2
--
-- Each command is one argument, its words separated by blanks; places are the numbers of the refused ones, from 1.
-- unknown: this server cannot tell, as Redis 6.2. Commands that the server does not have are not refused.
--
-- TWICE the same reply, unless the rights have changed.
-- LATE the reply is ignored.
-- MEMORY writes nothing.
if not redis.acl_check_cmd then
  return {'unknown'}
end
local refused = {}
for place, command in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(command, '%S+') do
    words[#words + 1] = word
  end
  local known, may = pcall(redis.acl_check_cmd, unpack(words))
  if known and not may then
    refused[#refused + 1] = place
  end
end
return {'refused', refused}
