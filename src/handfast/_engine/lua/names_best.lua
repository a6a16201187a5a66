-- names_best: find the names with the best ranks among those that begin with a prefix; one step.
--
-- KEYS names ranks
-- ARGV prefix limit way start after
-- REPLY scanned matching entries_and_ranks last
-- REPLY walked matching entries next last
--
-- Two ways lead to the best names. `scan` reads the names with the prefix in the order of their bytes,
-- and returns the best of them. `walk` reads all names from the best rank on, and returns those with the
-- prefix; if ranks and prefixes are independent, it has found enough after limit / (share of names
-- that match) steps. `any` chooses the way that is likely to be shorter. Each call reads a bounded
-- number of names (invariant 13).
--
-- matching is the number of names with the prefix. The next scan starts after the entry `last`, which is
-- empty at the end. The next walk starts after `last`, or at `next` if `last` was removed; `next` is 0
-- at the end.
--
-- TWICE the same answer: it writes nothing.
-- LATE no caller reads the reply, and nothing was written.
-- MEMORY it needs none.
local names, ranks = KEYS[1], KEYS[2]
local prefix, limit, way = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local start, after = tonumber(ARGV[4]), ARGV[5]
local SCAN = 500 -- names that one scan reads
local WALK = 1000 -- names that one walk reads at most
local FEW = 50 -- largest limit for which a scan sorts the names itself

local low, high = '[' .. prefix, '(' .. prefix .. '\255'
local matching = redis.call('ZLEXCOUNT', names, low, high)
local steps = matching > 0 and limit * redis.call('ZCARD', ranks) / matching or 0

if way == 'scan' or way == 'any' and (matching <= SCAN or matching <= steps) then
  if after ~= '' then
    low = '(' .. after
  end
  local found = redis.call('ZRANGEBYLEX', names, low, high, 'LIMIT', 0, SCAN)
  local texts = found[1] and redis.call('ZMSCORE', ranks, unpack(found)) or {}
  local picked = {}
  if limit > FEW then
    for place, entry in ipairs(found) do
      picked[#picked + 1], picked[#picked + 2] = entry, texts[place] or 'inf'
    end
  else
    -- The places of the best names so far, best first: an insertion sort, which is fast as long as the list is short.
    local best, best_ranks, count = {}, {}, 0
    for place, text in ipairs(texts) do
      local rank = text and tonumber(text) or math.huge
      if count < limit or rank < best_ranks[count] then
        local slot = count < limit and count + 1 or count
        count = slot
        while slot > 1 and best_ranks[slot - 1] > rank do
          best[slot], best_ranks[slot] = best[slot - 1], best_ranks[slot - 1]
          slot = slot - 1
        end
        best[slot], best_ranks[slot] = place, rank
      end
    end
    for _, place in ipairs(best) do
      picked[#picked + 1], picked[#picked + 2] = found[place], texts[place] or 'inf'
    end
  end
  local all_of_them = after == '' and matching <= SCAN
  return {'scanned', matching, picked, not all_of_them and found[SCAN] or ''}
end

local seen = after ~= '' and redis.call('ZRANK', ranks, after)
local from = seen and seen + 1 or start
-- Twice the expected steps are usually enough; if they are not, the expectation was wrong.
local wanted = way == 'walk' and WALK or math.min(WALK, math.max(limit, math.ceil(2 * steps)))
local piece = redis.call('ZRANGE', ranks, from, from + wanted - 1)
local size, some, stop = #prefix, {}, 0
while #some < limit and piece[stop + 1] do
  stop = stop + 1
  if string.sub(piece[stop], 1, size) == prefix then
    some[#some + 1] = piece[stop]
  end
end
local more = piece[stop + 1] or piece[wanted]
return {'walked', matching, some, more and from + stop or 0, piece[stop] or ''}
