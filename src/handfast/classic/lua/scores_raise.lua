-- scores_raise: set the score of each member that is missing or has a smaller score.
--
-- KEYS scores
-- ARGV scores_and_members...
-- REPLY - how many members were added
--
-- One by one, because unpack is limited to some thousands of values; a score is set as the string that was passed.
local scores = KEYS[1]

local added = 0
for index = 1, #ARGV, 2 do
  local score, member = ARGV[index], ARGV[index + 1]
  local known = tonumber(redis.call('ZSCORE', scores, member))
  if not known or known < tonumber(score) then
    added = added + redis.call('ZADD', scores, score, member)
  end
end
return added
