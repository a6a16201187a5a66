-- costs: the costs of the members of a window.
--
-- USES
-- GIVES cost_of costs_of

-- The cost is the last word of a member.
local function cost_of(member)
  return string.match(member, '%d+$')
end

local function costs_of(members)
  local sum = 0
  for _, member in ipairs(members) do
    sum = sum + cost_of(member)
  end
  return sum
end
