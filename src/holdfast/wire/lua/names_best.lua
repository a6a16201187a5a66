-- names_best: of the names that begin with a prefix, those of the best rank.
--
-- KEYS names ranks
-- ARGV prefix limit start
-- REPLY best entries
-- REPLY some entries next
--
-- There are two ways. Where few names begin with the prefix, all of them are looked at. Where many
-- do, some of them are likely to be among the best of all, so the ranks are walked from the best on,
-- from `start`: a piece for each call, so that no call takes the server long. `some` is what a piece
-- had, and `next` where to go on. Which way is shorter is known from how many match: the walk is
-- likely to have found enough after limit / (share of those that match) steps.
--
-- TWICE the same answer: it writes nothing.
-- LATE nobody hears it.
-- MEMORY it needs none.
local names, ranks = KEYS[1], KEYS[2]
local prefix, limit, start = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local PIECE, FEW = 2000, 200

local low, high = '[' .. prefix, '(' .. prefix .. '\255'
local matching = redis.call('ZLEXCOUNT', names, low, high)

if start == 0 and matching <= PIECE then
  local all = redis.call('ZCARD', ranks)
  if matching <= FEW or matching * matching <= limit * all then
    local found = redis.call('ZRANGEBYLEX', names, low, high)
    if matching > 0 then
      -- The best so far, best first. Few of the others get in, so keeping them in order costs next to nothing.
      local best, best_ranks, count = {}, {}, 0
      for place, rank_text in ipairs(redis.call('ZMSCORE', ranks, unpack(found))) do
        local rank = rank_text and tonumber(rank_text) or math.huge
        if count < limit or rank < best_ranks[count] then
          local slot = count < limit and count + 1 or count
          count = slot
          while slot > 1 and best_ranks[slot - 1] > rank do
            best[slot], best_ranks[slot] = best[slot - 1], best_ranks[slot - 1]
            slot = slot - 1
          end
          best[slot], best_ranks[slot] = found[place], rank
        end
      end
      found = best
    end
    return {'best', found}
  end
end

local size, some = #prefix, {}
local piece = redis.call('ZRANGE', ranks, start, start + PIECE - 1)
for _, entry in ipairs(piece) do
  if string.sub(entry, 1, size) == prefix then
    some[#some + 1] = entry
    if #some == limit then
      return {'best', some}
    end
  end
end
if #piece < PIECE then
  return {'best', some}
end
return {'some', some, start + PIECE}
