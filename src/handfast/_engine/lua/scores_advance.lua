-- scores_advance: move members forward to new scores, and count the outcomes.
--
-- KEYS scores answer
-- ARGV scores_and_members...
-- REPLY advanced added moved stale
--
-- Members that are not there are added; those whose score is not larger than theirs are stale, and stay.
--
-- TWICE the same answer: it is remembered in `answer`, a key of this one call, for 20 s.
-- LATE it moves nothing back.
-- MEMORY the first write is a ZADD, which is refused, and nothing has changed.
local scores, answer = KEYS[1], KEYS[2]

local given = redis.call('GET', answer)
if given then
  local added, moved, stale = string.match(given, '^(%d+) (%d+) (%d+)$')
  return {'advanced', tonumber(added), tonumber(moved), tonumber(stale)}
end
local before = redis.call('ZCARD', scores)
local changed = redis.call('ZADD', scores, 'GT', 'CH', unpack(ARGV))
local added = redis.call('ZCARD', scores) - before
local moved, stale = changed - added, #ARGV / 2 - changed
redis.call('SET', answer, added .. ' ' .. moved .. ' ' .. stale, 'PX', 20000)
return {'advanced', added, moved, stale}
