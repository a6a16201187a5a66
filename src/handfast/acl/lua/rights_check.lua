-- rights_check: which of some commands whoever runs this may not send. None of them is sent.
--
-- ARGV commands...
-- REPLY refused places
-- REPLY unknown
-- NEEDS redis 7.0, valkey 7.2
--
-- Each is a whole command, its words with blanks between them; places are those of the refused ones, from 1.
-- unknown: this server has no way to tell, which goes for Redis 6.2. A command that it does not have is not refused.
--
-- TWICE the same answer, unless somebody has changed the rights.
-- LATE nobody hears the answer.
-- MEMORY it writes nothing.
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
