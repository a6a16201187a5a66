-- names_rank: put names into an index that ranks them.
--
-- KEYS names ranks
-- ARGV how entries_and_ranks...
-- REPLY ranked
--
-- how is `set`, or `keep` to leave the rank of a name that has one. Both sets have the same entries:
-- `names` in the order of their bytes, `ranks` with the best first, since its scores are negated ranks.
--
-- TWICE the same sets.
-- LATE it adds names again that were removed since: the writers of data must agree on an order.
-- MEMORY the first ZADD is refused, and nothing has changed.
local names, ranks = KEYS[1], KEYS[2]
local how = ARGV[1]

local entries, ranked = {}, {}
for place = 2, #ARGV, 2 do
  local entry, rank = ARGV[place], ARGV[place + 1]
  entries[#entries + 1], entries[#entries + 2] = '0', entry
  ranked[#ranked + 1], ranked[#ranked + 2] = rank, entry
end
redis.call('ZCARD', names) -- fails on a key of another type before anything is written
if how == 'keep' then
  redis.call('ZADD', ranks, 'NX', unpack(ranked))
else
  redis.call('ZADD', ranks, unpack(ranked))
end
redis.call('ZADD', names, unpack(entries))
return {'ranked'}
