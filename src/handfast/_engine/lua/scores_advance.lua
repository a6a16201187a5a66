-- scores_advance: move members forward to new scores, and count the outcomes.
--
-- KEYS members answer
-- ARGV scores_and_members...
-- REPLY advanced added moved stale
--
-- Members that do not exist are added. A score that is not larger than the member's is stale and changes nothing.
--
-- TWICE the same answer: `answer`, a key of this call alone, stores it for REPEAT_MS.
-- LATE it moves no member back.
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
redis.call('SET', answer, added .. ' ' .. moved .. ' ' .. stale, 'PX', REPEAT_MS)
return {'advanced', added, moved, stale}
